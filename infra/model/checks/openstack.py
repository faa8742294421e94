"""Checks of an OpenStack environment, with the reason for each refusal; without calls to Magnum.

Source: magnum-capi-helm of 2026-06 (``driver.py``: ``_process_node_groups``, ``_update_helm_release``,
``_validate_allowed_node_counts``, ``provides``; ``conf.py``), and its chart ``openstack-cluster`` in
capi-helm-charts (``node-group/machine-deployment.yaml``, ``cluster-addons/templates/cni``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.gpu.machines import flavors
from infra.model.openstack.cluster import (
    AUTOSCALER_LABEL,
    GPU_LABEL,
    LABELS,
    RESERVED_GROUPS,
    SCALING_DRIVERS,
    OpenstackCluster,
    is_enabled,
)
from infra.model.platform.monitoring import Monitoring
from infra.model.platform.operator import GpuOperatorSpec
from infra.model.pool.elastic import NODES
from infra.model.pool.pool import Pool
from infra.model.workload import claims
from infra.model.workload.workload import Workload


def check(name: str, cluster: OpenstackCluster, pools: Sequence[Pool]) -> None:
    """Refuse the first setting that Magnum does not support, or treats in another way."""
    if not re.match("[a-z]", name):
        fact = f"{name!r} becomes the cluster's name, and a cluster's name in Magnum begins with a letter"
        raise InputError("name", fact, "put a letter before it")
    _check_labels(cluster)
    if cluster.driver == "capi":
        check_capi(cluster, pools)
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        if pool.name in RESERVED_GROUPS:
            fact = f"{pool.name!r} is a node group that every cluster of Magnum's has"
            raise InputError(f"{path}.name", fact, "use another name")
        _check_elastic(pool, path)
        _check_claims(cluster, pool, path)
        _check_settings(pool, path)


def warnings(
    cluster: OpenstackCluster, pools: Sequence[Pool], monitoring: Monitoring | None
) -> tuple[str, ...]:
    """Accepted settings that are not advisable or need more: path, fact and remedy of each."""
    warnings = []
    # Source: Magnum's user guide, post install manifest. The charts of the Cluster API driver make a default.
    if (
        cluster.driver == "heat"
        and monitoring
        and monitoring.storage
        and not monitoring.storage.storage_class
    ):
        fact = "missing, and Magnum's Heat driver makes no class: the volume might never be created"
        warnings.append(f"monitoring.storage.class: {fact}; name one that the cluster has or will have")
    for key, name in (("masters", cluster.masters.flavor), ("workers", cluster.workers.flavor)):
        if (machine := cluster.machine(name)) and machine.gpus:
            fact = f"{name} has {machine.gpus} {machine.gpu}, and no workload of a pool runs there"
            warnings.append(f"cluster.{key}.flavor: {fact}; use a flavor without GPU, and a pool for GPUs")
    if not cluster.workers.nodes and all(pool.gpus or pool.taints for pool in pools):
        fact = "no node takes the pods that request no GPU, such as the operator"
        warnings.append(f"cluster.workers.nodes: {fact}; use 1 or more, or a pool without GPUs and taints")
    for index, pool in enumerate(pools):
        flavor, settings = pool.flavor, pool.openstack_settings
        if flavor and flavor.deprecated:
            alternatives = " or ".join(machine.name for machine in flavors() if machine.gpu == flavor.gpu)
            fact = f"{flavor.name} is deprecated, and may be unavailable when a node has to be replaced"
            warnings.append(f"pools[{index}].machine: {fact}; use {alternatives}")
        if pool.elastic and cluster.driver not in SCALING_DRIVERS:
            role = f"--node-group-auto-discovery=magnum:role={settings.role or 'worker'}"
            fact = "Magnum's Heat driver scales no node group of a pool"
            warnings.append(f"pools[{index}].elastic: {fact}; run a cluster-autoscaler with {role}")
    return (*warnings, *(capi_warnings(cluster) if cluster.driver == "capi" else ()))


def _check_labels(cluster: OpenstackCluster) -> None:
    tag = cluster.labels.get("kube_tag")
    if tag and not re.match(rf"v?{re.escape(cluster.version)}([.-]|$)", tag):
        fact = f"{tag} is not Kubernetes {cluster.version}, the declared version"
        raise InputError("cluster.labels.kube_tag", fact, "give both the same minor version")


def check_flavors(cluster: OpenstackCluster, pools: Sequence[Pool]) -> None:
    """Refuse pools without an OpenStack flavor."""
    for index, pool in enumerate(pools):
        _check_flavor(cluster, pool, f"pools[{index}]")


def _check_flavor(cluster: OpenstackCluster, pool: Pool, path: str) -> None:
    if pool.flavor and pool.flavor.seller == "openstack":
        return
    known = flavors({name: flavor.machine(name) for name, flavor in cluster.flavors.items()})
    models = {gpu.name for gpu in pool.gpus}
    names = [flavor.name for flavor in known if (flavor.gpu in models if models else flavor.gpu is None)]
    own_flavor = "one declared in cluster.flavors"
    if pool.flavor is None:
        fact = "a node group has one flavor, and only the cloud knows which one has these GPUs"
        remedy = (
            f"name it: machine: {' or '.join(names)}, or {own_flavor}"
            if names
            else f"give machine: {own_flavor}"
        )
        raise InputError(f"{path}.gpu", fact, remedy)
    remedy = f"use {' or '.join(names)}, or {own_flavor}" if names else f"use {own_flavor}"
    raise InputError(f"{path}.machine", f"{pool.machine} is an EC2 instance type", remedy)


def _check_elastic(pool: Pool, path: str) -> None:
    """Magnum's bounds count nodes, and cluster-autoscaler learns of GPUs from existing nodes."""
    elastic, path = pool.elastic, f"{path}.elastic"
    if elastic is None:
        return
    for key in elastic.max:
        if key != NODES:
            fact = "a node group of Magnum's is bounded by its number of nodes"
            raise InputError(f"{path}.max.{key}", fact, "use max: {nodes: N}")
    if pool.min_nodes > pool.max_nodes:
        fact = f"{pool.min_nodes} is more than max.nodes, {pool.max_nodes}"
        raise InputError(f"{path}.min", fact, f"use {pool.max_nodes} or less, or raise max.nodes")
    if pool.min_nodes == 0 and pool.gpus:
        raise InputError(
            f"{path}.min",
            "cluster-autoscaler assumes no GPUs in an empty node group of Magnum's, so a pod that requests "
            "one would stay pending",
            "use 1 or more",
        )


def check_taints(cluster: OpenstackCluster, spec: GpuOperatorSpec, pools: Sequence[Pool]) -> None:
    """The operator of capi-helm-charts tolerates NVIDIA's taint only (``daemonsets.tolerations``)."""
    if cluster.driver != "capi" or spec.mode != "existing":
        return
    fact = "Cluster API's own operator does not tolerate this taint, so the nodes would offer no GPU"
    if spec.taint is None or spec.taint.key != labels.NVIDIA_GPU:
        raise InputError("gpu_operator.gpu_taint", fact, "leave it out")
    for index, pool in enumerate(pools):
        if pool.gpus and pool.taints:
            raise InputError(f"pools[{index}].taints", fact, "leave it out")


def check_workloads(pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    """Refuse pods for which no node would ever start.

    Of an empty group cluster-autoscaler knows the flavor and Magnum's own labels (magnum_cloud_provider.go);
    the pool's label is set on nodes after they join.
    """
    empty = unlabelled_pools(pools)
    for index, work in enumerate(workloads):
        if work.pool in empty:
            raise empty_pool_error(f"workloads[{index}].pool", work.pool)


def unlabelled_pools(pools: Sequence[Pool]) -> frozenset[str]:
    """Pools that may be empty, and that cluster-autoscaler then does not know by the pool's label."""
    empty = (pool for pool in pools if pool.elastic and pool.min_nodes == 0)
    return frozenset(pool.name for pool in empty if labels.POOL not in pool.openstack_settings.labels)


def empty_pool_error(path: str, pool: str) -> InputError:
    """The refusal of pods that select such a pool."""
    fact = f"cluster-autoscaler does not know the pool label of an empty group, so {pool} would stay empty"
    remedy = f"give the pool elastic.min: 1, or openstack: {{labels: {{{labels.POOL}: {pool}}}}}"
    return InputError(path, fact, remedy)


def _check_claims(cluster: OpenstackCluster, pool: Pool, path: str) -> None:
    if not pool.by_claim:
        return
    if pool.elastic:
        fact = "cluster-autoscaler starts no node of Magnum's for a claim, so the pool would never grow"
        raise InputError(f"{path}.sharing.kind", fact, "give the pool nodes: N, or use another kind")
    claims.require_api(cluster.version, path)


def _check_settings(pool: Pool, path: str) -> None:
    settings, path = pool.openstack_settings, f"{path}.openstack"
    if AUTOSCALER_LABEL in settings.labels:
        fact = "cluster-autoscaler serves the whole cluster, and only elastic pools"
        raise InputError(f"{path}.labels.{AUTOSCALER_LABEL}", fact, "leave it out")


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


def check_capi(cluster: OpenstackCluster, pools: Sequence[Pool]) -> None:
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


def capi_warnings(cluster: OpenstackCluster) -> Iterator[str]:
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
