"""What is wrong with pods of manifests that request InfiniBand or RoCE adapters."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpuform.manifests import placement
from gpuform.manifests.documents import entries, mapping_at
from gpuform.manifests.edit import Addition
from gpuform.manifests.finding import Finding
from gpuform.manifests.pods import Container, FoundPod
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import allocatable

LOCK = "IPC_LOCK"


def findings(env: Environment, pod: FoundPod, gpus: Collection[str]) -> Iterator[Finding]:
    """Resources that no pool offers with these of GPUs, too many, and containers that may lock no memory."""
    for name, container in sorted(pod.resources(labels.RDMA_PREFIX).items()):
        keys = container.keys_of(name)
        offering = {pool.name: pool for pool in env.pools if pool.rdma and pool.rdma.resource == name}
        if not offering:
            known = sorted({pool.rdma.resource for pool in env.pools if pool.rdma})
            remedy = f"request {' or '.join(known)}" if known else f"give a pool rdma: {{resource: {name}}}"
            yield Finding(pod.document, keys, "error", f"no pool offers {name}", remedy)
            continue
        chosen = [
            pool.rdma.offered
            for pool in offering.values()
            if pool.rdma
            and {*gpus} <= allocatable.max_resources(pool).keys()
            and placement.selects(env, pool, pod.spec)
        ]
        where = f"pool {' or '.join(offering)}"
        if not chosen:
            fact = f"{name} is offered by {where}, which lacks what else these pods request or select"
            yield Finding(pod.document, keys, "error", fact, f"select {labels.POOL}: {min(offering)}")
        elif (wanted := int(pod.total(name))) > max(chosen):
            fact = f"a pod requests {wanted} {name}, and a node of {where} has {max(chosen)}"
            yield Finding(pod.document, keys, "error", fact, f"request {max(chosen)} or less per pod")
    for container in pod.containers:
        if any(name.startswith(labels.RDMA_PREFIX) for name in (*container.limits, *container.requests)):
            yield from _memory(pod, container)


def _memory(pod: FoundPod, container: Container) -> Iterator[Finding]:
    """As `infra.plan.rdma.security`; a warning, since hosts may allow any process to lock memory."""
    context = mapping_at(container.value, ("securityContext",))
    at = (*container.at[:-1], "securityContext")
    added = entries(mapping_at(context, ("capabilities",)), "add")
    if not context.get("privileged") and not {LOCK, f"CAP_{LOCK}", "ALL"} & {*added}:
        keys = (*at, "capabilities", "add")
        fact = f"requests adapters without {LOCK}: more memory than RLIMIT_MEMLOCK cannot be registered"
        remedy = f"add {LOCK} (--fix does), or allow any process of the container engine to lock memory"
        addition = Addition(pod.document, keys, [LOCK])
        yield Finding(pod.document, keys, "warning", fact, remedy, (addition,))
    elif _is_nonroot({**mapping_at(pod.spec, ("securityContext",)), **context}):
        fact = f"does not run as root, and {LOCK} has no effect for other users"
        remedy = "use runAsUser: 0, or allow any process of the container engine to lock memory"
        yield Finding(pod.document, at, "warning", fact, remedy)


def _is_nonroot(context: dict[str, object]) -> bool:
    return bool(context.get("runAsUser", 0) or context.get("runAsNonRoot"))
