"""Which pods the operator's driver upgrade has to end on a node, and which flags it needs for them.

It evicts all pods with a GPU of a node, or none: one with an emptyDir needs ``delete_empty_dir``, one without
a controller ``force``. If it evicts none, it drains the node, by the drain's own flags. If that fails or is
not enabled, the node stays cordoned as ``upgrade-failed``, and counts against the limits of nodes
(gpu-operator v26.7.0: k8s-operator-libs, pkg/upgrade/pod_manager.go; kubectl, pkg/drain/filters.go).
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.environment import Environment
from infra.model.platform.operator import Drain
from infra.model.workload import matching
from infra.model.workload.workload import InferenceWorkload, Workload

REASONS = {"delete_empty_dir": "has an emptyDir", "force": "has no controller"}


def flags(env: Environment, drain: Drain | None = None) -> dict[str, bool]:
    """The declared flags of the drain, if given, else of the upgrade, else what declared workloads need."""
    found = {key: bool(works) for key, works in _needed(env).items()}
    for block in (env.gpu_operator.upgrade, drain):
        found |= block.model_dump(include=set(found), exclude_none=True) if block else {}
    return found


def warnings(env: Environment) -> Iterator[str]:
    """Flags that are switched off although pods of declared workloads need them."""
    drain = env.gpu_operator.upgrade.drain
    for key, works in _needed(env).items():
        if works and not flags(env, drain)[key]:
            is_drain = getattr(drain, key, None) is False
            path, end = (f"drain.{key}", "a drain fails") if is_drain else (key, "its node is not upgraded")
            fact = f"each pod of workload {works[0].name} {REASONS[key]}, and {end}"
            yield f"gpu_operator.upgrade.{path}: {fact}; use true, or leave it out"


def _needed(env: Environment) -> dict[str, list[Workload]]:
    """The workloads with GPUs that need each flag; none if the operator upgrades no driver by itself."""
    is_ours = env.ownership.driver == "operator"
    works = [
        work
        for work in (env.workloads if is_ours and env.gpu_operator.upgrade.auto else ())
        if any(pool.gpus for pool in matching.pools_of(env.pools, work))
    ]
    with_empty_dir = [work for work in works if has_empty_dir(work)]
    return {"delete_empty_dir": with_empty_dir, "force": [work for work in works if work.kind == "pod"]}


def has_empty_dir(work: Workload) -> bool:
    """KServe downloads a model into an emptyDir, and mounts that of a claim (kserve/kserve#4694)."""
    model = work.model if isinstance(work, InferenceWorkload) else None
    downloads = model is not None and not model.uri.startswith("pvc://")
    mounts = any("emptyDir" in volume for volume in (work.pod or {}).get("volumes", ()))
    return bool(work.shm or work.hugepages or downloads or mounts)
