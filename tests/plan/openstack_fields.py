from __future__ import annotations

from typing import Any

_FLAVOR = {"gpu": "L40S", "count": 2, "vcpu": 32, "memory_gib": 128}
_CLUSTER: dict[str, Any] = {
    "kind": "openstack",
    "template": "kubernetes-1.34",
    "version": "1.34",
    "flavors": {"gpu.l40s": _FLAVOR},
}
_POOLS: list[dict[str, Any]] = [
    {"name": "l40s", "machine": "gpu.l40s", "nodes": 1},
    {
        "name": "t4",
        "machine": "g2.5xlarge",
        "elastic": {"min": 1, "max": {"nodes": 3}},
        "openstack": {"labels": {"a": "b"}},
    },
]
NAMED: dict[str, Any] = {
    "name": "e",
    "cluster": {**_CLUSTER, "labels": {"a": "b"}},
    "pools": _POOLS,
    "scheduling": {"packer": True},
}
PLAIN: dict[str, Any] = {**NAMED, "pools": _POOLS[:1]}
OWN: dict[str, Any] = {**NAMED, "cluster": {**_CLUSTER, "template": {"image": "fcos"}}}

ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("OpenstackCluster", "template"): (NAMED, "cluster/template", "kubernetes-1.34-2"),
    ("OpenstackCluster", "version"): (NAMED, "cluster/version", "1.35"),
    ("OpenstackCluster", "driver"): (PLAIN, "cluster/driver", "capi"),
    ("OpenstackCluster", "keypair"): (NAMED, "cluster/keypair", "gpu-admins"),
    ("OpenstackCluster", "network"): (NAMED, "cluster/network", {"floating_ip": True}),
    ("OpenstackCluster", "masters"): (NAMED, "cluster/masters", {"nodes": 3}),
    ("OpenstackCluster", "workers"): (NAMED, "cluster/workers", {"nodes": 2}),
    ("OpenstackCluster", "labels"): (NAMED, "cluster/labels", {"a": "c"}),
    ("OpenstackCluster", "merge_labels"): (NAMED, "cluster/merge_labels", False),
    ("OpenstackCluster", "docker_volume_gib"): (NAMED, "cluster/docker_volume_gib", 50),
    ("OpenstackCluster", "timeout_minutes"): (NAMED, "cluster/timeout_minutes", 90),
    ("OpenstackCluster", "flavors"): (NAMED, "cluster/flavors/gpu.l40s", {**_FLAVOR, "count": 4}),
    ("OpenstackCluster", "region"): (NAMED, "cluster/region", "cern"),
    ("Flavor", "gpu"): (NAMED, "cluster/flavors/gpu.l40s/gpu", "V100"),
    ("Flavor", "count"): (NAMED, "cluster/flavors/gpu.l40s/count", 4),
    ("Flavor", "vcpu"): (NAMED, "cluster/flavors/gpu.l40s/vcpu", 16),
    ("Flavor", "memory_gib"): (NAMED, "cluster/flavors/gpu.l40s/memory_gib", 64),
    ("ClusterNetwork", "fixed_network"): (NAMED, "cluster/network", {"fixed_network": "n"}),
    ("ClusterNetwork", "fixed_subnet"): (
        NAMED,
        "cluster/network",
        {"fixed_network": "n", "fixed_subnet": "s"},
    ),
    ("ClusterNetwork", "floating_ip"): (NAMED, "cluster/network", {"floating_ip": False}),
    ("Masters", "nodes"): (NAMED, "cluster/masters", {"nodes": 3}),
    ("Masters", "flavor"): (NAMED, "cluster/masters", {"flavor": "m2.large"}),
    ("Masters", "lb"): (NAMED, "cluster/masters", {"lb": True}),
    ("Workers", "nodes"): (NAMED, "cluster/workers", {"nodes": 2}),
    ("Workers", "flavor"): (NAMED, "cluster/workers", {"flavor": "m2.large"}),
    ("TemplateSpec", "image"): (OWN, "cluster/template/image", "other"),
    ("TemplateSpec", "network_driver"): (OWN, "cluster/template/network_driver", "flannel"),
    ("TemplateSpec", "external_network"): (OWN, "cluster/template/external_network", "ext"),
    ("TemplateSpec", "dns_nameserver"): (OWN, "cluster/template/dns_nameserver", "192.0.2.1"),
    ("TemplateSpec", "volume_driver"): (OWN, "cluster/template/volume_driver", "cinder"),
    ("TemplateSpec", "master_lb"): (OWN, "cluster/template/master_lb", True),
    ("TemplateSpec", "floating_ip"): (OWN, "cluster/template/floating_ip", False),
    ("TemplateSpec", "docker_volume_gib"): (OWN, "cluster/template/docker_volume_gib", 50),
    ("TemplateSpec", "server_type"): (OWN, "cluster/template/server_type", "bm"),
    ("TemplateSpec", "labels"): (OWN, "cluster/template/labels", {"a": "c"}),
    ("TemplateSpec", "public"): (OWN, "cluster/template/public", True),
    ("Pool", "openstack"): (NAMED, "pools/0/openstack", {"role": "gpu"}),
    ("OpenstackPool", "role"): (NAMED, "pools/0/openstack", {"role": "gpu"}),
    ("OpenstackPool", "image"): (NAMED, "pools/0/openstack", {"image": "other"}),
    ("OpenstackPool", "labels"): (NAMED, "pools/1/openstack/labels", {"a": "c"}),
    ("OpenstackPool", "merge_labels"): (NAMED, "pools/1/openstack/merge_labels", False),
    ("OpenstackPool", "docker_volume_gib"): (NAMED, "pools/0/openstack", {"docker_volume_gib": 50}),
    ("Elastic", "min"): (NAMED, "pools/1/elastic/min", 2),
}

# How the cloud is reached goes to the provider; what may be replaced goes to the guards, which
# tests/plan/test_magnum_guards.py tests.
EXEMPT = {
    ("OpenstackCluster", "cloud"),
    ("OpenstackCluster", "allow_replace"),
    ("OpenstackPool", "allow_replace"),
}
