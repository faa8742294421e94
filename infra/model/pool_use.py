"""Warnings about pools on AWS that do not suit what is declared to run there.

``karpenter.sh/do-not-disrupt`` (labels.KEPT) stops consolidation; expiry and interruptions it does not stop,
drift only where there is no grace period [Karpenter's page "Disruption"].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from infra.model import gpu_matching, offer
from infra.model.elastic import DISRUPTION
from infra.model.pool import Pool
from infra.model.quantities import seconds
from infra.model.workload import JobWorkload, NotebookWorkload, PodWorkload, Workload

if TYPE_CHECKING:
    from infra.model.environment import Environment

_BUFFERS = {"FI_EFA_FORK_SAFE", "FI_EFA_USE_HUGE_PAGE"}
"""Without them libfabric's buffers are in huge pages [libfabric, man/fi_efa.7.md; EKS user guide, EFA]."""


def warnings(env: Environment) -> Iterator[str]:
    """Nodes that end under their workloads, adapters and huge pages that are not requested."""
    strategy = env.gpu_operator.mig_strategy
    pools_of = [(work, gpu_matching.pools_of(strategy, env.pools, work)) for work in env.workloads]
    for index, pool in enumerate(env.pools):
        here = [(work, pools) for work, pools in pools_of if pool in pools]
        per_node = max((*offer.max_resources(strategy, pool).values(), *pool.gpu_counts))
        slow = [
            work
            for work, pools in here
            if _is_distributed(work) and work.pods * work.device_count > per_node
            if not work.efa and all(item.adapters for item in pools)
        ]
        if slow:
            share = max(1, pool.adapters * slow[0].device_count // max(*pool.gpu_counts, 1))
            fact = f"{_named(slow)} requests no adapter, so NCCL uses TCP between nodes"
            yield f"pools[{index}].aws.efa: {fact}; give the workload efa: {share}"
        for text in _unsuited(pool, [work for work, _ in here]):
            yield f"pools[{index}].{text}"


def _unsuited(pool: Pool, works: Sequence[Workload]) -> Iterator[str]:
    row = DISRUPTION[pool.workload_class]
    fragile = [work for work in works if isinstance(work, NotebookWorkload) or _is_distributed(work)]
    jobs = [work for work in works if isinstance(work, JobWorkload) and row.grace]
    long = [work for work in jobs if 60 * (work.wait_minutes or 0) > seconds(row.expire_after)]
    lost = [*fragile, *(work for work in works if isinstance(work, PodWorkload))]
    if lost and "spot" in pool.capacity:
        fact = f"EC2 ends spot nodes two minutes after its notice, with {_named(lost)}"
        yield f"capacity: {fact}; leave spot out"
    if (fragile or long) and row.grace and pool.by_karpenter:
        fact = f"Karpenter ends nodes {row.grace} after they are {row.expire_after} old"
        yield f"class: {fact}, with {_named(fragile or long)}; use training, which ends only empty nodes"
    bare = [work for work in works if work.efa and not work.hugepages and not _BUFFERS & work.env.keys()]
    if bare:
        fact = f"libfabric allocates its buffers there, and {_named(bare)} requests none"
        yield f"hugepages: {fact}; use 5Gi in both, or env: {{FI_EFA_USE_HUGE_PAGE: 0}} in the workload"
    elif pool.hugepages and works and not any(work.hugepages for work in works):
        fact = f"each node reserves {pool.hugepages} at boot, and {_named(works)} requests none"
        yield f"hugepages: {fact}; leave it out, or request hugepages"


def _is_distributed(work: Workload) -> bool:
    """Whether several pods run at the same time and need each other."""
    return isinstance(work, JobWorkload) and work.parallelism > 1 and (work.gang or work.has_rendezvous)


def _named(works: Sequence[Workload]) -> str:
    more = f" and {len(works) - 1} more" if works[1:] else ""
    return f"{works[0].kind} {works[0].name}{more}"
