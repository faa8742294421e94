"""ResourceQuotas and LimitRanges of others in the namespaces of the declared workloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.checkout.listing import abbreviate
from gpuform.clouds.existing.preflight.cluster import LiveCluster, object_name
from gpuform.stack.preflight.check import Check, Result
from infra.model import surge
from infra.model.environment import Environment
from infra.model.quantities import quantity
from infra.model.workload import Workload
from infra.plan.quotas import QUOTA

QUOTAS, RANGES = "resourcequotas", "limitranges"
Json = Mapping[str, Any]


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    if env.workloads:
        yield Check("limits of namespaces", f"{by_hand} get {QUOTAS},{RANGES} -A -o yaml", judge)


def judge(cluster: LiveCluster) -> Result:
    """Pods that the API server would refuse. They limit their memory and GPUs, and not their CPU."""
    ranges, facts = list(cluster.list_objects(RANGES)), list[str]()
    for item in cluster.list_objects(QUOTAS):
        needs, spec = Counter[str](), item["spec"]
        for work in _workloads(cluster.env, item):
            needs.update({key: work.pods * amount for key, amount in _needs(cluster.env, work).items()})
        if item["metadata"]["name"] == QUOTA or spec.get("scopes") or spec.get("scopeSelector") or not needs:
            continue
        hard = spec.get("hard") or {}
        facts += _exceeded(f"ResourceQuota {object_name(item)}", "allows", hard, needs)
        if "limits.cpu" in hard and not any(_has_default(one, item) for one in ranges):
            facts.append(f"ResourceQuota {object_name(item)} requires a CPU limit, which pods do not declare")
    for item in ranges:
        for work in _workloads(cluster.env, item):
            for limit in item["spec"].get("limits") or ():
                needs, name = _needs(cluster.env, work), f"LimitRange {object_name(item)}"
                plain = {key.removeprefix("requests."): amount for key, amount in needs.items()}
                facts += _exceeded(name, f"allows each {limit['type']}", limit.get("max") or {}, plain)
                cpu = {key: value for key, value in (limit.get("default") or {}).items() if key == "cpu"}
                facts += _exceeded(name, "limits pods by default to", cpu, plain)
    if facts:
        return Result(
            "FAIL", abbreviate(list(dict.fromkeys(facts)), separator="; "), "raise it, or request less"
        )
    return Result("PASS", "no quota and no limit of others refuses declared pods")


def _workloads(env: Environment, item: Json) -> list[Workload]:
    return [work for work in env.workloads if work.namespace == item["metadata"]["namespace"]]


def _needs(env: Environment, work: Workload) -> dict[str, float]:
    cpu, memory = quantity(work.cpu), quantity(work.memory)
    requests = {**dict.fromkeys(("cpu", "requests.cpu"), cpu), **surge.requests_of(env, work)}
    return {"pods": 1, **requests, **dict.fromkeys(("memory", "requests.memory", "limits.memory"), memory)}


def _has_default(limits: Json, quota: Json) -> bool:
    """Whether a LimitRange of the quota's namespace gives pods a CPU limit; a maximum is one, too."""
    same = limits["metadata"]["namespace"] == quota["metadata"]["namespace"]
    entries = limits["spec"].get("limits") or ()
    return same and any("cpu" in {**(one.get("default") or {}), **(one.get("max") or {})} for one in entries)


def _exceeded(name: str, verb: str, bounds: Json, needs: Mapping[str, float]) -> Iterator[str]:
    for key, bound in bounds.items():
        if key in needs and needs[key] > quantity(bound):
            need = f"{needs[key] / 2**30:g}Gi" if "memory" in key else f"{needs[key]:g}"
            yield f"{name} {verb} {key} {bound}, and {need} is declared"
