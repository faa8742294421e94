"""Admission policies: the API server refuses, or warns about, pods that no pool of the stack can ever run.

A part of what `gpuform check` finds, from the same facts: a resource that no pool offers, more than a node
offers, and a toleration or a node selector that leaves no pool with the resource. As in Pod Security
Admission, pods are refused in mode ``deny``, while Deployments and the like are only warned about: their pods
are what counts, and a change of the pools must not block the update of an image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from json import dumps

from infra.model.base import labels, namespaces
from infra.model.environment import Environment
from infra.model.platform import monitoring
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan import pod_needs, sharing
from infra.plan.manifest import Manifest, manifest, own_labels

API = "admissionregistration.k8s.io/v1"
_EXEMPT = (
    *namespaces.SYSTEM,
    namespaces.KEDA,
    namespaces.KSERVE,
    namespaces.CERT_MANAGER,
    monitoring.NAMESPACE,
)
_TEMPLATES = (("apps", ("deployments", "statefulsets")), ("batch", ("jobs",)))


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """A policy for pods and one for their templates, each with its binding; empty if there is none."""
    if env.admission is None or not any(allocatable.max_resources(pool) for pool in env.pools):
        return ()
    pods = ((("", ("pods",)),), ("CREATE",), "object.spec", "Warn" if env.admission == "warn" else "Deny")
    templates = (_TEMPLATES, ("CREATE", "UPDATE"), "object.spec.template.spec", "Warn")
    return (*_policy(env, "gpu-pods", *pods), *_policy(env, "gpu-pod-templates", *templates))


def _policy(
    env: Environment,
    suffix: str,
    kinds: Sequence[tuple[str, Sequence[str]]],
    operations: Sequence[str],
    spec: str,
    action: str,
) -> Iterator[Manifest]:
    meta = {"name": f"gpuform-{env.name}-{suffix}", "labels": own_labels(env)}
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": list(resources),
        }
        for group, resources in kinds
    ]
    content = {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": rules},
        "variables": [
            {"name": name, "expression": expression.replace("$", spec)} for name, expression in _VARIABLES
        ],
        "validations": list(_validations(env)),
    }
    selector = [
        {"key": labels.NAMESPACE_NAME, "operator": "NotIn", "values": sorted(_EXEMPT)},
        {"key": labels.ADMISSION, "operator": "NotIn", "values": ["off"]},
    ]
    yield manifest("ValidatingAdmissionPolicy", meta, API, spec=content)
    yield manifest(
        "ValidatingAdmissionPolicyBinding",
        meta,
        API,
        spec={
            "policyName": meta["name"],
            "validationActions": [action],
            "matchResources": {"namespaceSelector": {"matchExpressions": selector}},
        },
    )


_VARIABLES = (
    ("init", "has($.initContainers) ? $.initContainers : []"),
    ("limits", "($.containers + variables.init).filter(c, has(c.resources) && has(c.resources.limits))"),
    ("running", "$.containers.filter(c, has(c.resources) && has(c.resources.limits))"),
    ("tolerations", "has($.tolerations) ? $.tolerations : []"),
    ("selector", "has($.nodeSelector) ? $.nodeSelector : {}"),
)
"""``limits`` and ``running`` are the containers that have limits: all, and without init containers."""


def _validations(env: Environment) -> Iterator[Manifest]:
    pools = [pool for pool in env.pools if allocatable.max_resources(pool)]
    offered = sorted({name for pool in pools for name in allocatable.max_resources(pool)})
    prefix, check = dumps(labels.NVIDIA_PREFIX), f"see gpuform check {env.name}"
    yield {
        "expression": f"variables.limits.all(c, c.resources.limits.all(name, !name.startsWith({prefix}) || "
        f"name in {dumps(offered)}))",
        "message": f"no GPU pool of {env.name} offers what it requests, but {', '.join(offered)}; {check}",
    }
    for name in offered:
        having = [pool for pool in pools if name in allocatable.max_resources(pool)]
        key = dumps(name)
        most = max(allocatable.most_per_pod(pool, name) for pool in having)
        count = (
            f"variables.running.map(c, {key} in c.resources.limits ? "
            f"quantity(string(c.resources.limits[{key}])).asInteger() : 0).sum()"
        )
        yield {
            "expression": f"{count} <= {most}",
            "message": f"it requests more {name} than a pod can have ({most}); {check}",
        }
        names = " or ".join(pool.name for pool in having)
        yield {
            "expression": f"!variables.limits.exists(c, {key} in c.resources.limits) || "
            + " || ".join(f"({_may_run_on(env, pool)})" for pool in having),
            "message": f"it requests {name}, but does not tolerate or select nodes of pool {names}; "
            f"{check} --explain {having[0].name}",
        }


def _may_run_on(env: Environment, pool: Pool) -> str:
    """Whether a pod tolerates the pool's taints, and its node selector contradicts no label that is known."""
    conditions = [
        *(
            _tolerates(env, taint["key"], taint["value"], taint["effect"])
            for taint in sharing.pool_taints(env, pool)
        ),
        *(
            f"(!({dumps(key)} in variables.selector) || variables.selector[{dumps(key)}] in {_list(values)})"
            for key, values in sorted(pod_needs.node_labels(env, pool).items())
            if pod_needs.ANY not in values
        ),
    ]
    return " && ".join(filter(None, conditions)) or "true"


def _list(values: Iterable[str]) -> str:
    return dumps(list(values))


def _tolerates(env: Environment, key: str, value: str, effect: str) -> str:
    """As Kubernetes' ``Toleration.ToleratesTaint``; empty for a taint that keeps no pod off."""
    if effect == "PreferNoSchedule":
        return ""
    equal = f"has(t.key) && t.key == {dumps(key)}"
    if not sharing.has_any_value(env, key):
        equal += f" && (has(t.value) ? t.value : '') == {dumps(value)}"
    return (
        f"variables.tolerations.exists(t, (!has(t.effect) || t.effect in ['', {dumps(effect)}]) && "
        f"(has(t.operator) && t.operator == 'Exists' ? !has(t.key) || t.key in ['', {dumps(key)}] : {equal}))"
    )
