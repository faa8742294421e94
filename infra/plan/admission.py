"""Admission policies: the API server refuses, or warns about, pods that no pool of the stack can ever run.

A part of what `gpuform check` finds, from the same facts: a resource that no pool offers, more than a node
offers, and a toleration or a node selector that leaves no pool with the resource. As in Pod Security
Admission, pods are refused in mode ``deny``, while Deployments and the like are only warned about: their pods
are what counts, and a change of the pools must not block the update of an image.

In mode ``fix`` a policy adds what `gpuform check --fix` writes into a pod spec, and the others warn.
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
_SELECTED = f"(variables.selector[?{dumps(labels.POOL)}].orValue(''))"
_TEMPLATES = (("apps", ("deployments", "statefulsets")), ("batch", ("jobs",)))


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """A policy for pods and one for their templates, each with its binding; empty if there is none."""
    if env.admission is None or not any(allocatable.max_resources(pool) for pool in env.pools):
        return ()
    action = "Deny" if env.admission == "deny" else "Warn"
    on_create = _rules([("", ("pods",))], ["CREATE"])
    on_write = _rules(_TEMPLATES, ["CREATE", "UPDATE"])
    pods = {**on_create, **_variables("object.spec"), "validations": [*_validations(env)]}
    templates = {
        **on_write,
        **_variables("object.spec.template.spec"),
        "validations": [*_validations(env, tolerated=env.admission == "fix")],
    }
    found = [
        *_policy(env, "Validating", "gpu-pods", pods, {"validationActions": [action]}),
        *_policy(env, "Validating", "gpu-pod-templates", templates, {"validationActions": ["Warn"]}),
    ]
    if env.admission == "fix" and (additions := [*_additions(env)]):
        patches = {"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(additions)}}
        content = {**on_create, **_variables("object.spec"), "mutations": [patches]}
        found += _policy(env, "Mutating", "gpu-pods", {**content, "reinvocationPolicy": "Never"}, {})
    return tuple(found)


def _rules(kinds: Iterable[tuple[str, Sequence[str]]], operations: Sequence[str]) -> Manifest:
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["v1"],
            "operations": list(operations),
            "resources": list(resources),
        }
        for group, resources in kinds
    ]
    return {"failurePolicy": "Ignore", "matchConstraints": {"resourceRules": rules}}


def _variables(spec: str) -> Manifest:
    return {
        "variables": [
            {"name": name, "expression": expression.replace("$", spec)} for name, expression in _VARIABLES
        ]
    }


def _policy(
    env: Environment, verb: str, suffix: str, content: Manifest, binding: Manifest
) -> Iterator[Manifest]:
    """A policy and its binding to the namespaces of tenants."""
    meta = {"name": f"gpuform-{env.name}-{suffix}", "labels": own_labels(env)}
    selector = [
        {"key": labels.NAMESPACE_NAME, "operator": "NotIn", "values": sorted(_EXEMPT)},
        {"key": labels.ADMISSION, "operator": "NotIn", "values": ["off"]},
    ]
    where = {"matchResources": {"namespaceSelector": {"matchExpressions": selector}}}
    yield manifest(f"{verb}AdmissionPolicy", meta, API, spec=content)
    yield manifest(
        f"{verb}AdmissionPolicyBinding", meta, API, spec={"policyName": meta["name"], **binding, **where}
    )


_VARIABLES = (
    ("init", "has($.initContainers) ? $.initContainers : []"),
    ("limits", "($.containers + variables.init).filter(c, has(c.resources) && has(c.resources.limits))"),
    ("running", "$.containers.filter(c, has(c.resources) && has(c.resources.limits))"),
    ("tolerations", "has($.tolerations) ? $.tolerations : []"),
    ("selector", "has($.nodeSelector) ? $.nodeSelector : {}"),
)
"""``limits`` and ``running`` are the containers that have limits: all, and without init containers."""


def _validations(env: Environment, tolerated: bool = False) -> Iterator[Manifest]:
    """``tolerated``: the pods get tolerations when they are created."""
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
            + " || ".join(f"({_may_run_on(env, pool, tolerated)})" for pool in having),
            "message": f"it requests {name}, but does not tolerate or select nodes of pool {names}; "
            f"{check} --explain {having[0].name}",
        }


def _additions(env: Environment) -> Iterator[str]:
    """Expressions, each a list of patches that is empty for a pod that needs none of it.

    A pod gets the tolerations that all pools with its resource need, and those of the pool that it selects by
    the label gpuform.io/pool: never one that would open a pool to it that was not chosen.
    """
    pools = [pool for pool in env.pools if allocatable.max_resources(pool)]
    offered = {pool.name: sorted(allocatable.max_resources(pool)) for pool in pools}
    tolerations = []
    for toleration in sharing.pod_tolerations(env, pools):
        if toleration["effect"] == "PreferNoSchedule":
            continue
        having = [pool for pool in pools if toleration in sharing.pod_tolerations(env, [pool])]
        names = {name for pool in having for name in offered[pool.name]}
        common = sorted(name for name in names if toleration in pod_needs.common_tolerations(env, [name]))
        selected = [pool.name for pool in having if {*offered[pool.name]} - {*common}]
        wanted = [_requests(common)] if common else []
        if selected:
            chosen = f"{_SELECTED} in {_list(selected)} && {_requests(sorted(names))}"
            wanted.append(f"({chosen})")
        has = _tolerates(env, toleration["key"], toleration.get("value", ""), toleration["effect"])
        missing = f"({' || '.join(wanted)}) && !{has}"
        fields = ", ".join(f"{key}: {dumps(text)}" for key, text in toleration.items())
        tolerations.append(
            f"({missing} ? [{_patch('tolerations/-', f'Object.spec.tolerations{{{fields}}}')}] : [])"
        )
    if tolerations:
        yield f"(has(object.spec.tolerations) ? [] : [{_patch('tolerations', '[]')}])"
        yield from tolerations
    every = _requests(sorted({name for names in offered.values() for name in names}))
    for key, value in pod_needs.fields(env, (), resource=True, claim=False).items():
        unset = f"(!has(object.spec.{key}) || object.spec.{key} in ['', 'default-scheduler'])"
        yield f"({every} && {unset} ? [{_patch(key, dumps(value))}] : [])"


def _requests(names: Sequence[str]) -> str:
    return f"variables.limits.exists(c, c.resources.limits.exists(name, name in {_list(names)}))"


def _patch(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: "/spec/{path}", value: {value}}}'


def _may_run_on(env: Environment, pool: Pool, tolerated: bool) -> str:
    """Whether a pod tolerates the pool's taints, and its node selector contradicts no label that is known."""
    taints = () if tolerated else sharing.pool_taints(env, pool)
    conditions = [
        *(_tolerates(env, taint["key"], taint["value"], taint["effect"]) for taint in taints),
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
