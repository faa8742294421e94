"""Whether a pod spec selects a pool's nodes, by the scheduler's rules.

k8s.io/component-helpers, scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpuform.manifests.documents import Keys, entries, mapping_at
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import pod_needs

_OF_OTHERS = (
    *("nvidia.com/", "feature.node.kubernetes.io/", "topology.", "node.kubernetes.io/", "kubernetes.io/"),
    *("beta.kubernetes.io/", "failure-domain.", "eks.amazonaws.com/", "karpenter.", "k8s.io/", "node-role."),
    *("k8s.amazonaws.com/", "vpc.amazonaws.com/", "magnum.openstack.org/", "simulator.", "gpuform.io/"),
)
"""Beginnings of labels that discovery, kubelet and clouds set, with values that are not all known."""


def offering(env: Environment, names: Collection[str]) -> list[Pool]:
    """The pools of which the nodes offer all these resources."""
    return [pool for pool in env.pools if {*names} <= allocatable.max_resources(pool).keys()]


def selects(env: Environment, pool: Pool, spec: Mapping[str, Any]) -> bool:
    """Whether a node of the pool may satisfy the selector and the required affinity."""
    known = pod_needs.node_labels(env, pool)
    strict = pod_needs.sets_all_labels(env)
    if any(not _may_be(known, strict, key, [str(value)]) for key, value in _selector(spec).items()):
        return False
    terms = list(_terms(spec))
    return not terms or any(all(_holds(known, strict, item) for item in term) for term in terms)


def mismatch(env: Environment, pools: Sequence[Pool], spec: Mapping[str, Any]) -> tuple[Keys, str]:
    """Where a spec that selects none of the pools says so, and what the pools have instead."""
    strict = pod_needs.sets_all_labels(env)
    for key, value in _selector(spec).items():
        if not any(_may_be(pod_needs.node_labels(env, pool), strict, key, [str(value)]) for pool in pools):
            return ("nodeSelector", key), f"{key} is {_values(env, pools, key)} there, not {value}"
    if list(_terms(spec)):
        wrong = {
            str(item.get("key")): _values(env, pools, str(item.get("key")))
            for term in _terms(spec)
            for item in term
            if not any(_holds(pod_needs.node_labels(env, pool), strict, item) for pool in pools)
        }
        facts = ", ".join(f"{key} is {has} there" for key, has in wrong.items())
        return ("affinity", "nodeAffinity"), facts or "no pool satisfies all of a term"
    return ("nodeSelector",), "each pool contradicts another label"


def _values(env: Environment, pools: Sequence[Pool], key: str) -> str:
    values = {value for pool in pools for value in pod_needs.node_labels(env, pool).get(key, ())}
    return " or ".join(sorted(values)) or "not set"


def _selector(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_at(spec, ("nodeSelector",))


def _terms(spec: Mapping[str, Any]) -> Iterator[list[Mapping[str, Any]]]:
    required = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in entries(mapping_at(spec, required), "nodeSelectorTerms"):
        if isinstance(term, Mapping):
            yield [item for item in entries(term, "matchExpressions") if isinstance(item, Mapping)]


def _may_be(known: Mapping[str, tuple[str, ...]], strict: bool, key: str, values: Sequence[str]) -> bool:
    if key in known:
        return pod_needs.ANY in known[key] or bool({*known[key]} & {*values})
    return not strict or key.startswith(_OF_OTHERS)


def _holds(known: Mapping[str, tuple[str, ...]], strict: bool, item: Mapping[str, Any]) -> bool:
    key, operator = str(item.get("key")), item.get("operator")
    values = [str(value) for value in entries(item, "values")]
    has = None if key in pod_needs.NAMES_OF_GPUS else known.get(key)
    if operator == "In":
        return _may_be(known, strict, key, values)
    if operator == "Exists":
        return has is not None or not strict or key.startswith(_OF_OTHERS)
    if operator == "NotIn":
        return has is None or pod_needs.ANY in has or bool({*has} - {*values})
    if operator == "DoesNotExist":
        return has is None
    return True  # Gt and Lt: of labels with numbers, which discovery sets
