"""What a pod needs to run on the GPUs of a pool; for the stack's workloads and for manifests of others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from infra.model.base import labels
from infra.model.base.namespaces import SCHEDULER
from infra.model.environment import Environment
from infra.model.gpu.models import GKE_GPUS
from infra.model.pool import allocatable
from infra.model.pool.elastic import CAPACITY_TYPES
from infra.model.pool.pool import Pool
from infra.plan import sharing
from infra.plan.manifest import Manifest

ANY = "*"
"""Value of a label of which the values are not known beforehand."""
NAMES_OF_GPUS = (labels.GKE_ACCELERATOR, labels.INSTANCE_GPU_NAME)
"""Labels that name the model where nodes have them: nodes of other clouds have none."""


def fields(env: Environment, pools: Iterable[Pool], resource: bool, claim: bool) -> Manifest:
    """Fields of its pod spec: whether it requests a GPU resource of these pools, or claims GPUs of them."""
    spec: Manifest = {}
    if env.uses_packer and (resource or claim):
        spec["schedulerName"] = SCHEDULER
    if env.runtime_class and resource:
        spec["runtimeClassName"] = env.runtime_class
    if tolerations := sharing.pod_tolerations(env, pools):
        spec["tolerations"] = tolerations
    return spec


def queue(env: Environment, namespace: str) -> str | None:
    """The queue in which the namespace's pods with GPUs wait; a namespace has one at most."""
    teams = env.queues.teams if env.queues else ()
    return next((team.name for team in teams if namespace in team.namespaces), None)


def tolerated_at_admission(env: Environment, taint: Mapping[str, str], resources: Iterable[str]) -> bool:
    """Whether the API server itself adds the toleration: EKS runs ExtendedResourceToleration.

    It tolerates a taint with the key of a requested resource: nvidia.com/gpu, and not shares or slices that
    have another name (docs.aws.amazon.com/eks, platform-versions; kubernetes,
    plugin/pkg/admission/extendedresourcetoleration).
    """
    return env.cluster.kind == "aws" and taint["effect"] == "NoSchedule" and taint["key"] in resources


def common_tolerations(env: Environment, names: Collection[str]) -> list[dict[str, str]]:
    """Those that each pool needs of which the nodes offer one of these resources."""
    offering = [pool for pool in env.pools if not allocatable.max_resources(pool).keys().isdisjoint(names)]
    needed = [sharing.pod_tolerations(env, [pool]) for pool in offering]
    return [one for one in sharing.pod_tolerations(env, offering) if all(one in each for each in needed)]


def added_tolerations(env: Environment, names: Collection[str], selected: object) -> list[dict[str, str]]:
    """What ``admission: fix`` gives a pod that requests these resources, `infra.plan.admission` in Python.

    The common ones, and those of the ``selected`` pool, which the pod names by the label gpuform.io/pool.
    """
    if env.admission != "fix" or not names:
        return []
    own = [pool for pool in env.pools if pool.name == selected]
    return [*common_tolerations(env, names), *sharing.pod_tolerations(env, own)]


def node_labels(env: Environment, pool: Pool) -> dict[str, tuple[str, ...]]:
    """Labels of the pool's nodes that are known beforehand, with the values that each may have."""
    machines = pool.machines or ((pool.node_machine,) if pool.node_machine else ())
    found: dict[str, tuple[str, ...]] = {
        labels.OS: ("linux",),
        **{key: (value,) for key, value in sharing.pool_labels(env, pool).items()},
        **{key: (value,) for key, value in (pool.selector or {}).items()},
    }
    if pool.gpus:
        found[labels.PCI_PRESENT] = found[labels.GPU_PRESENT] = ("true",)
        found |= {key: values or (ANY,) for key, values in allocatable.shared_labels(pool).items()}
        if not sets_all_labels(env):
            names = {gpu.name for gpu in pool.gpus}
            on_gke = tuple(key for key, name in GKE_GPUS.items() if name in names)
            found.setdefault(labels.GKE_ACCELERATOR, on_gke)
            found.setdefault(labels.INSTANCE_GPU_NAME, tuple(gpu.ec2[0] for gpu in pool.gpus if gpu.ec2))
    if machines:
        found[labels.ARCH] = tuple(sorted({machine.arch for machine in machines}))
    if env.cluster.kind == "aws":
        found[labels.INSTANCE_TYPE] = tuple(machine.name for machine in machines)
        if pool.zones:
            found[labels.ZONE] = pool.zones
    if pool.by_karpenter:
        found[labels.NODE_POOL] = tuple(pool.node_pools)
        found[labels.CAPACITY_TYPE] = tuple(CAPACITY_TYPES[capacity] for capacity in pool.capacity)
    return found


def sets_all_labels(env: Environment) -> bool:
    """Whether each label of a node comes from gpuform, Kubernetes, the cloud or NVIDIA."""
    return env.cluster.kind in ("aws", "embedded")
