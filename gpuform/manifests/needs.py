"""What pods of manifests need of a stack's GPUs, for the planner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuform.manifests import placement
from gpuform.manifests.pods import FoundPod
from infra.model.base import labels
from infra.model.base.namespaces import SYSTEM
from infra.model.environment import Environment
from infra.planner.demands import need_now
from infra.planner.need import Need

_MIB = 2**20


def needs(env: Environment, pods: Iterable[FoundPod], namespace: str) -> Iterator[Need | str]:
    """A need for each pod template with GPUs, or why it is left out, as a sentence.

    ``namespace``: that of objects that name none. Pods need what they are guaranteed today.
    """
    used: set[str] = set()
    for pod in pods:
        where = pod.document.namespace(namespace)
        requested = pod.resources(labels.NVIDIA_PREFIX)
        if not requested or (pod.document.kind == "DaemonSet" and where in SYSTEM):
            continue
        name = f"{where}/{pod.document.name}"
        while name in used:
            name += "-and"
        used.add(name)
        yield _need(env, pod, name, [*requested])


def _need(env: Environment, pod: FoundPod, name: str, requested: list[str]) -> Need | str:
    if len(requested) > 1:
        return f"{name} is left out: it requests {' and '.join(requested)}"
    (resource,) = requested
    if pod.count is None:
        return f"{name} is left out: its number of pods is not in the manifest"
    offering = placement.offering(env, requested)
    pools = [pool for pool in offering if placement.selects(env, pool, pod.spec)]
    if not pools:
        return f"{name} is left out: no pool offers {resource} to it; see `gpuform check`"
    one = Need(
        name,
        pod.count,
        cpu=round(pod.total("cpu") * 1000),
        ram_mib=int(pod.total("memory") // _MIB),
        efa=int(pod.total(labels.EFA)),
        huge_mib=int(pod.total(labels.HUGE_PAGES) // _MIB),
    )
    return need_now(pools, resource, one, int(pod.total(resource)))
