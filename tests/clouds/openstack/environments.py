from __future__ import annotations

from functools import partial
from typing import Any

from gpuform.clouds.openstack.preflight import checks_of
from gpuform.clouds.openstack.preflight.project import Project, StateClusters
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from infra.model.environment import Environment
from tests.clouds.openstack.fake_cloud import FakeCloud

T4 = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 2}
CLUSTER = {"uuid": "c-1", "name": "research", "status": "CREATE_COMPLETE"}
A100 = {"name": "gpu-a100", "machine": "g4.p1.40g", "elastic": {"min": 1, "max": {"nodes": 4}}}


def environment(*pools: dict[str, Any], **cluster: Any) -> Environment:
    base = {
        "kind": "openstack",
        "region": "cern",
        "template": "kubernetes-1.30.2-2",
        "version": "1.30",
        "keypair": "gpu-admins",
    }
    operator = {"gpu_operator": cluster.pop("operator")} if "operator" in cluster else {}
    content = {"name": "research", "cluster": {**base, **cluster}, "pools": list(pools) or [T4, A100]}
    return parse(content | operator)


def findings(
    cloud: FakeCloud, env: Environment, state: StateClusters | None = None, **more: Any
) -> dict[str, Finding]:
    connect = partial(cloud.connect, **{"region": "cern", **more})
    results = list(checks_of(env, "research", Project(connect, env.name, state)))
    by_subject = {finding.subject: finding for finding in results}
    assert len(by_subject) == len(results), "two checks of one name"
    assert all(finding.check.startswith(("openstack ", "on each node")) for finding in results), (
        "each names the command that asks the same"
    )
    return by_subject


IMAGE = {"id": "i-1", "name": "fedora-coreos-40", "os_distro": "fedora-coreos", "status": "active"}
INSIDE = {"id": "n-2", "name": "inside", "subnets": ["s-1"]}


def environment_in_network(cloud: FakeCloud) -> Environment:
    """In a network that exists, from a template with load balancers and floating IPs."""
    cloud.templates[0] |= {"floating_ip_enabled": True, "master_lb_enabled": True}
    cloud.images, cloud.networks = [IMAGE], [INSIDE]
    cloud.subnets = [{"id": "s-1", "name": "nodes", "network_id": "n-2", "cidr": "10.0.0.0/24"}]
    network = {"fixed_network": "inside", "fixed_subnet": "nodes"}
    pool = T4 | {"openstack": {"image": IMAGE["name"]}}
    return environment(pool, A100, network=network, docker_volume_gib=50, operator={"driver": "host"})
