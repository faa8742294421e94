"""ResourceQuotas and LimitRanges of others in the namespaces of the declared workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.checkout.listing import abbreviate
from gpuform.clouds.existing.preflight.cluster import LiveCluster, object_name
from gpuform.kubernetes.kinds import LIMIT_RANGE, RESOURCE_QUOTA
from gpuform.stack.preflight.check import Check, Result
from infra.model.base.quantities import quantity
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.workload.workload import Workload
from infra.plan.quotas import QUOTA

Json = Mapping[str, Any]


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    if env.workloads:
        kinds = f"{RESOURCE_QUOTA.resource},{LIMIT_RANGE.resource}"
        yield Check("limits of namespaces", f"{by_hand} get {kinds} -A -o yaml", judge)


def judge(cluster: LiveCluster) -> Result:
    """Pods that the API server would refuse. They limit their memory and GPUs, and not their CPU."""
    ranges, facts = list(cluster.list_objects(LIMIT_RANGE)), list[str]()
    with_cpu_limit = {  # a maximum is a default, too
        item["metadata"]["namespace"]
        for item in ranges
        for limit in item["spec"].get("limits") or ()
        if "cpu" in {**(limit.get("default") or {}), **(limit.get("max") or {})}
    }
    for item in cluster.list_objects(RESOURCE_QUOTA):
        needs, spec = dict[str, float](), item["spec"]
        for work in _workloads(cluster.env, item):
            for key, amount in _needs(cluster.env, work).items():
                needs[key] = needs.get(key, 0) + work.pods * amount
        if item["metadata"]["name"] == QUOTA or spec.get("scopes") or spec.get("scopeSelector") or not needs:
            continue
        hard = spec.get("hard") or {}
        facts += _exceeded(f"ResourceQuota {object_name(item)}", "allows", hard, needs)
        if "limits.cpu" in hard and item["metadata"]["namespace"] not in with_cpu_limit:
            facts.append(f"ResourceQuota {object_name(item)} requires a CPU limit, which pods do not declare")
    for item in ranges:
        for work in _workloads(cluster.env, item):
            for limit in item["spec"].get("limits") or ():
                needs, name = _needs(cluster.env, work), f"LimitRange {object_name(item)}"
                plain = {key.removeprefix("requests."): amount for key, amount in needs.items()}
                facts += _exceeded(name, f"allows each {limit['type']}", limit.get("max") or {}, plain)
                if cpu := (limit.get("default") or {}).get("cpu"):
                    facts += _exceeded(name, "limits pods by default to", {"cpu": cpu}, plain)
    if facts:
        fix = "raise it or request less; for a CPU limit, a LimitRange with a default for cpu"
        return Result("FAIL", abbreviate(list(dict.fromkeys(facts)), separator="; "), fix)
    return Result("PASS", "no quota and no limit of others refuses declared pods")


def _workloads(env: Environment, item: Json) -> list[Workload]:
    return [work for work in env.workloads if work.namespace == item["metadata"]["namespace"]]


def _needs(env: Environment, work: Workload) -> dict[str, float]:
    cpu, memory = quantity(work.cpu), quantity(work.memory)
    requests = {**dict.fromkeys(("cpu", "requests.cpu"), cpu), **fit.requests_of(env, work)}
    return {"pods": 1, **requests, **dict.fromkeys(("memory", "requests.memory", "limits.memory"), memory)}


def _exceeded(name: str, verb: str, bounds: Json, needs: Mapping[str, float]) -> Iterator[str]:
    for key, bound in bounds.items():
        if key in needs and needs[key] > quantity(bound):
            need = f"{needs[key] / 2**30:g}Gi" if "memory" in key else f"{needs[key]:g}"
            yield f"{name} {verb} {key} {bound}, and {need} is declared"
