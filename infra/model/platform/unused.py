"""Fields of a pool and of the operator that have no effect on this kind of cluster.

If given, they are refused with the reason; the resolved environment leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.model.base.errors import InputError
from infra.model.platform.operator import GpuOperatorSpec, Ownership
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Dra, Mig

Reason = tuple[str, str]

_FIXED = ("an embedded cluster simulates a fixed number of nodes", "give nodes: N, or use cluster kind aws")
_ELSE_AWS = "leave it out, or use cluster kind aws"
_NODES_EXIST = ("the nodes of an existing cluster already exist", _ELSE_AWS)
_CLASS = "the class decides when Karpenter may remove nodes, and this"
NO_CLASS = (f"{_CLASS} pool has a fixed number", "leave it out, or make the pool elastic")
"""A warning only: it does no harm."""
_ONLY_ELASTIC = "it may only differ in an elastic pool, and on nodes that exist"
_FIXED_NUMBER = "the number of nodes is fixed: placeholders would occupy nodes and start none"
_NOTHING_SPARE = (_FIXED_NUMBER, f"{_ELSE_AWS} and an elastic pool")
_IMAGE_OWNS = ("on AWS the node image includes it", "leave it out")
_HOSTS_NAMED = ("the hosts exist, and are named one by one", "leave it out, and name them in hosts")
_NOT_HOSTS = ("the pool's nodes are not own hosts", "leave it out, or use cluster kind hosts")
_NOT_OPENSTACK = ("the cluster is not on OpenStack", "leave it out, or use cluster kind openstack")

_USE_EFA = ("nodes on AWS have Elastic Fabric Adapters", "leave it out, and give aws: {efa: true}")
_NO_RDMA = ("Magnum's nodes are machines of Nova", "leave it out, or use cluster kind existing")

_COMMON: Mapping[str, Reason] = {
    "spare": _NOTHING_SPARE,
    "workload_class": (f"{_CLASS} cluster has no Karpenter", _ELSE_AWS),
    **dict.fromkeys(("zones", "aws"), ("the cluster is not on AWS", _ELSE_AWS)),
    **dict.fromkeys(("hosts", "driver"), _NOT_HOSTS),
    "openstack": _NOT_OPENSTACK,
}
_BY_LABEL = "leave it out, or give openstack: {labels: {availability_zone: ZONE}}"
_POOL: Mapping[str, Mapping[str, Reason]] = {
    "embedded": {
        "elastic": _FIXED,
        "capacity": ("simulated nodes have no capacity type", _ELSE_AWS),
        **_COMMON,
    },
    "existing": {"elastic": _NODES_EXIST, "capacity": _NODES_EXIST, **_COMMON},
    "hosts": {
        "machine": ("own hosts have no flavor or instance type", "leave it out, and give their gpu"),
        "nodes": _HOSTS_NAMED,
        "selector": _HOSTS_NAMED,
        "elastic": ("gpuform cannot create hosts", "leave it out"),
        "capacity": ("the hosts already exist", _ELSE_AWS),
        **{key: reason for key, reason in _COMMON.items() if reason != _NOT_HOSTS},
    },
    "openstack": {
        "capacity": ("Magnum's nodes have one capacity type", _ELSE_AWS),
        **{key: reason for key, reason in _COMMON.items() if reason != _NOT_OPENSTACK},
        "spare": (
            "cluster-autoscaler keeps no node free, only at least elastic.min nodes",
            "leave it out, or raise elastic.min",
        ),
        "rdma": _NO_RDMA,
        "zones": ("Magnum places a whole node group by its label", _BY_LABEL),
    },
}
_DRIVER_FIELDS = ("driver_version", "driver_repository", "driver_image", "kernel_modules", "upgrade")
_ELSE_OPERATOR = "leave it out, or use mode: operator"
_ALONE = ("mode device_plugin installs none, the nodes include it", _ELSE_OPERATOR)
_NO_CHOICE = ("the device plugin in the node image does not support it", "leave it out")
_TOOLKIT_MODE = "leave it out, and give cluster.toolkit.mode: cdi or runtime"
_BY_MODE = ("on own hosts cluster.toolkit.mode decides it", _TOOLKIT_MODE)
_ON_AWS = ("NVIDIA's runtime is the default of the node image", "leave it out, or give a workload its own")
_NO_HOLES = ("mode device_plugin installs neither an operator nor a toolkit", _ELSE_OPERATOR)
_CLUSTER_DECIDES = ("the cluster's own operator decides it", _ELSE_OPERATOR)
_ONLY_OURS = ("no other node feature discovery is on this cluster", "leave it out")
_FACTS = {"driver": "host", "toolkit": "host", "nfd": True}
"""What is so wherever these settings have no effect: it may be declared."""
_WITH_GPUS = ("driver", "toolkit", "cuda", "acknowledge")


def _ansible_reason(part: str) -> Reason:
    return (f"Ansible installs the {part} on own hosts", f"leave it out (cluster.{part} sets its version)")


def _owner_reason(part: str, owner: str, is_plugin_only: bool) -> Reason:
    """Reason to refuse the operator's version of a part with another owner."""
    if owner == "host":
        reason = (f"the nodes include their {part}", f"leave it out, or use {part}: operator")
        return _ALONE if is_plugin_only else reason
    return _IMAGE_OWNS if owner == "image" else _ansible_reason(part)


def pool_fields(cluster: str, pool: Pool) -> Mapping[str, Reason]:
    """Fields of the pool without effect on this kind of cluster, each with the reason."""
    if cluster == "aws":
        others = {"hosts": _NOT_HOSTS, "driver": _NOT_HOSTS, "openstack": _NOT_OPENSTACK, "rdma": _USE_EFA}
        fields = others if pool.elastic else {"spare": _NOTHING_SPARE, **others}
        return fields if pool.by_karpenter else {"workload_class": NO_CLASS, **fields}
    return _POOL[cluster]


def cluster_fields(cluster: str, pools: Sequence[Pool]) -> tuple[str, ...]:
    """Fields of the cluster without effect because no pool has GPUs."""
    return _WITH_GPUS if cluster == "hosts" and not any(pool.gpus for pool in pools) else ()


def operator_fields(cluster: str, spec: GpuOperatorSpec, ownership: Ownership) -> Mapping[str, Reason]:
    """Settings without effect here, each with the reason; ``ownership`` is the environment's row."""
    fields: dict[str, Reason] = {}
    is_plugin_only = spec.mode == "device_plugin"
    if ownership.driver != "operator":
        fields |= dict.fromkeys(_DRIVER_FIELDS, _owner_reason("driver", ownership.driver, is_plugin_only))
    if ownership.toolkit != "operator":
        fields |= dict.fromkeys(
            ("toolkit_version", "toolkit_env"), _owner_reason("toolkit", ownership.toolkit, is_plugin_only)
        )
    if is_plugin_only:
        fields |= {"driver": _ALONE, "toolkit": _ALONE, "acknowledge": _NO_HOLES}
    if spec.mode == "existing":
        used = {"mode", "mig_strategy", "gpu_taint", "runtime_class"}
        fields |= {key: _CLUSTER_DECIDES for key in GpuOperatorSpec.model_fields if key not in used}
    elif cluster in ("aws", "embedded"):
        fields["nfd"] = _ONLY_OURS
    if cluster == "aws":
        fields |= {"driver": _IMAGE_OWNS, "toolkit": _IMAGE_OWNS, "runtime_class": _ON_AWS}
    if cluster == "hosts":
        fields |= {part: _ansible_reason(part) for part in ("driver", "toolkit")}
        fields |= dict.fromkeys(("cdi", "runtime_class"), _BY_MODE)
    if ownership.device_plugin == "image":
        fields["cdi"] = _NO_CHOICE
    return fields


def check_pool(cluster: str, pool: Pool, path: str) -> None:
    """Refuse the first given field that has no effect."""
    for name, reason in pool_fields(cluster, pool).items():
        field = Pool.model_fields[name]
        if reason != NO_CLASS and getattr(pool, name) != field.get_default(call_default_factory=True):
            raise InputError(f"{path}.{field.alias or name}", *reason)
    if cluster in ("existing", "hosts") and pool.gpu and pool.gpu.by_attribute:
        fact = "the nodes exist, so their GPUs cannot be chosen"
        raise InputError(f"{path}.gpu", fact, "name the model: {models, count}")
    for name in ("relayout", "reset"):
        if getattr(pool, name) is not None:
            _check_mig(cluster, pool, f"{path}.{name}")
    if len(pool.gpu_counts) > 1 and pool.elastic is None:
        if cluster != "existing":
            remedy = "make the pool elastic" if cluster == "aws" else "make a pool for each"
            raise InputError(f"{path}.gpu.count", _ONLY_ELASTIC, f"give one number, or {remedy}")
        if isinstance(pool.sharing, Mig | Dra):  # discovery then counts slices
            fact = "no label of a node with slices or claims tells how many GPUs it has"
            raise InputError(f"{path}.gpu.count", fact, "give one number, and make a pool for each")


def _check_mig(cluster: str, pool: Pool, path: str) -> None:
    remedy = "leave it out"
    if cluster == "aws" and pool.by_karpenter and path.endswith(".relayout"):
        raise InputError(path, "Karpenter replaces nodes instead of changing existing ones", remedy)
    if not pool.mig_capable:
        raise InputError(path, "no GPU of the pool supports MIG, so its layout never changes", remedy)
    if cluster == "aws" and pool.image.ships_device_plugin:
        fact = f"{pool.image.family} partitions GPUs at boot, so a new layout needs new nodes"
        raise InputError(path, fact, remedy)


def check_operator(cluster: str, spec: GpuOperatorSpec, ownership: Ownership) -> None:
    """Refuse the first given setting that has no effect."""
    for name, reason in operator_fields(cluster, spec, ownership).items():
        if name in spec.model_fields_set and getattr(spec, name) not in (None, _FACTS.get(name)):
            raise InputError(f"gpu_operator.{name}", *reason)
