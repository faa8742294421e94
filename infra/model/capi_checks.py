"""Settings that Magnum's Cluster API driver ignores or refuses, with the reason for each refusal.

Source: magnum-capi-helm of 2026-06 (``driver.py``: ``_process_node_groups``, ``_update_helm_release``,
``_validate_allowed_node_counts``, ``provides``; ``conf.py``), and its chart ``openstack-cluster`` in
capi-helm-charts (``node-group/machine-deployment.yaml``, ``cluster-addons/templates/cni``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.model.errors import InputError
from infra.model.openstack import AUTOSCALER_LABEL, GPU_LABEL, OpenstackCluster
from infra.model.pool import Pool

LABELS = frozenset(
    """
    api_master_lb_allowed_cidrs auto_healing_enabled auto_scaling_enabled boot_volume_size boot_volume_type
    capi_helm_chart_version csi_cinder_allow_volume_expansion csi_cinder_availability_zone csi_cinder_fstype
    csi_cinder_reclaim_policy csi_cinder_volume_binding_mode etcd_blockdevice_size etcd_blockdevice_type
    etcd_blockdevice_volume_az etcd_blockdevice_volume_type etcd_volume_size etcd_volume_type
    extra_network_name extra_network_names fixed_subnet_cidr keystone_auth_enabled kube_dashboard_enabled
    master_lb_floating_ip_enabled max_node_count min_node_count monitoring_enabled octavia_lb_algorithm
    octavia_lb_healthcheck octavia_provider
    """.split()  # noqa: SIM905
)
"""Labels of a cluster that the driver reads (``conf.py``)."""
_TRUE_VALUES = ("1", "on", "t", "true", "y", "yes")
"""What the driver takes for true (oslo.utils, ``bool_from_string``)."""
_DRIVER = "Magnum's Cluster API driver"
_REFUSED: Mapping[str, tuple[object, str, str]] = {
    "docker_volume_gib": (
        None,
        "has no volume for containers",
        "leave it out, or use labels: {boot_volume_size: GIB}",
    ),
    "network.floating_ip": (
        None,
        "gives nodes no floating IP",
        "leave it out (label master_lb_floating_ip_enabled is for the API's)",
    ),
    "masters.lb": (False, "makes a load balancer for the API in any case", "leave it out"),
}
"""Fields of the cluster, with the refused value (None: any), the fact and the remedy."""
_NAME = re.compile(r"[a-z][a-z0-9-]+[a-z0-9]")


def is_enabled(labels: Mapping[str, str], key: str = AUTOSCALER_LABEL) -> bool:
    """Whether the driver takes a label for true: without ``key``, the one that runs cluster-autoscaler."""
    return labels.get(key, "").strip().lower() in _TRUE_VALUES


def check(cluster: OpenstackCluster, pools: Sequence[Pool]) -> None:
    """Refuse the first setting that this driver ignores or refuses."""
    for path, (refused, fact, remedy) in _REFUSED.items():
        *parts, key = path.split(".")
        section: Any = getattr(cluster, parts[0]) if parts else cluster
        value = getattr(section, key) if key in getattr(section, "model_fields_set", ()) else None
        if value is not None and refused in (None, value):
            raise InputError(f"cluster.{path}", f"{_DRIVER} {fact}", remedy)
    counts = {f"pools[{index}].nodes": pool.nodes for index, pool in enumerate(pools)}
    if is_enabled(cluster.labels) or any(pool.elastic for pool in pools):
        for path, count in {"cluster.workers.nodes": cluster.workers.nodes, **counts}.items():
            if count == 0:
                raise InputError(path, f"{_DRIVER} refuses 0 beside cluster-autoscaler", "use 1 or more")
    for index, pool in enumerate(pools):
        _check_pool(cluster, pool, f"pools[{index}]")


def warnings(cluster: OpenstackCluster) -> Iterator[str]:
    """Labels that this driver does not read: a driver of the cloud's own may."""
    for key in sorted({*cluster.labels} - LABELS - {GPU_LABEL}):
        remedy = "leave it out, unless your cloud's own driver reads it"
        yield f"cluster.labels.{key}: {_DRIVER} does not read this label; {remedy}"


def _check_pool(cluster: OpenstackCluster, pool: Pool, path: str) -> None:
    if not _NAME.fullmatch(pool.name):
        fact = f"{pool.name!r} becomes the name of a node group, which Cluster API's chart refuses"
        raise InputError(f"{path}.name", fact, "use 3 or more of a-z, 0-9 and -, with a letter first")
    fact = f"{_DRIVER} takes only name, flavor, count and bounds of a node group, and ignores this"
    for key in ("role", "image", "labels", "merge_labels", "docker_volume_gib"):
        if key in pool.openstack_settings.model_fields_set:
            raise InputError(f"{path}.openstack.{key}", fact, "leave it out")
    if pool.elastic is None:
        return
    if pool.min_nodes == 0:
        fact = f"{_DRIVER} refuses a minimum below 1, and scales no group from 0 nodes"
        raise InputError(f"{path}.elastic.min", fact, "use 1 or more")
    if AUTOSCALER_LABEL in cluster.labels and not is_enabled(cluster.labels):
        fact = f"{path} is elastic, and without this label the driver ignores its bounds"
        remedy = "leave it out, or give the pool nodes: N"
        raise InputError(f"cluster.labels.{AUTOSCALER_LABEL}", fact, remedy)
