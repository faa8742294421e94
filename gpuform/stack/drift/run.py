"""Looks for drift in one stack; read-only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import httpx

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, Step
from gpuform.engine.events import value_at
from gpuform.engine.files import Tools
from gpuform.kubernetes.kubeconfig_errors import translate_errors, unreachable_failure
from gpuform.kubernetes.session import create_api, list_objects
from gpuform.stack.cluster_access import ClusterAccess, stack_kubeconfig
from gpuform.stack.drift import nodes
from gpuform.stack.drift.rules import Drift, DriftRules, Finding
from infra.model.environment import Environment

Say = Callable[[str], None]
_STEP = re.compile(r'\["([^"]+)"\]|\[(\d+)\]|([^.\[\]]+)')
_SECRET = re.compile(r"(?i)password|secret|token|credential|env\[\d+\]\.value|\bvalues\b")
"""Paths of values that may be secret; Helm values and variables of containers may contain anything."""
_HIDDEN = "[secret]"


def find_drift(
    env: Environment,
    rules: DriftRules,
    reach: ClusterAccess,
    paths: Paths,
    tools: Tools,
    stack: str,
    say: Say,
) -> Drift:
    """What was changed by hand in ``stack`` since it was made.

    Raises InputError for a stack on own hosts, and Failure if nothing was made yet, the engine ended with an
    error, or the cluster cannot be reached.
    """
    rules.require_managed(stack)
    engine = Engine(paths, tools, say=say)
    if not engine.export(stack).get("deployment", {}).get("resources"):
        raise Failure(
            f"stack {stack}", "has not been created", "run `up` first: there is nothing to compare with"
        )
    say(f"reading the cluster of {stack}")
    with stack_kubeconfig(env, reach, paths, engine, stack) as (kubeconfig, context):
        of_cluster = list(_cluster_findings(env, rules, stack, kubeconfig, context))
    say(f"refreshing the resources of {stack}")
    result = engine.drift(stack, on_event=lambda event: None)
    pairs = ((step, finding) for step in result.steps for finding in step_findings(step))
    findings = [finding for step, finding in pairs if not rules.is_expected(env, step, finding.path)]
    return Drift.merge(stack, findings, of_cluster)


def remove_added_keys(
    env: Environment, reach: ClusterAccess, paths: Paths, tools: Tools, stack: str, found: Drift
) -> None:
    """Remove keys that others added to the operands' ConfigMaps, which read them; an update leaves them."""
    from kr8s.objects import ConfigMap

    added = [
        item for item in found.findings if item.how == "added" and item.resource.startswith("ConfigMap ")
    ]
    if not added:
        return
    engine = Engine(paths, tools, say=lambda line: None)
    with stack_kubeconfig(env, reach, paths, engine, stack) as (kubeconfig, context), translate_errors():
        api = create_api(kubeconfig, context)
        for item in added:
            namespace, _, name = item.resource.removeprefix("ConfigMap ").partition("/")
            (key,) = _steps(item.path)[1:]
            ConfigMap.get(name, namespace, api=api).patch({"data": {key: None}})


def step_findings(step: Step) -> Iterator[Finding]:
    """Findings from the engine's refresh of one resource, path by path."""
    if step.type == "pulumi:pulumi:Stack" or step.phase not in ("planned", "done"):
        return
    resource = resource_name(step)
    if step.op == "delete":
        yield Finding(resource, "", "missing", "engine")
        return
    if step.change is None:
        return
    for path in step.change.paths:
        declared, actual = (
            value_at(inputs, _steps(path)) for inputs in (step.change.before, step.change.after)
        )
        how: Literal["changed", "missing"] = "missing" if actual is None else "changed"
        secret = resource.startswith("Secret ") or _SECRET.search(path)
        values = ("", "") if secret else (_shown(declared), _shown(actual))
        yield Finding(resource, _named(step.change.before, path), how, "engine", *values)


def _steps(path: str) -> list[str | int]:
    return [int(index) if index else key or name for key, index, name in _STEP.findall(path)]


def _named(inputs: Any, path: str) -> str:
    """The path with names of list entries instead of their numbers: ``containers[web].image``."""

    def name(match: re.Match[str]) -> str:
        entry = value_at(inputs, _steps(path[: match.end()]))
        key = (entry.get("name") or entry.get("key")) if isinstance(entry, Mapping) else None
        return f"[{key}]" if key else match[0]

    return re.sub(r"\[\d+\]", name, path)


def _shown(value: Any) -> str:
    """A scalar as text; empty for anything else, for several lines, and for what the engine hides."""
    if isinstance(value, bool):
        return str(value).lower()
    text = "" if value is None or isinstance(value, Mapping | list) else str(value)
    return "" if "\n" in text or text == _HIDDEN else text


def resource_name(step: Step) -> str:
    """``Node t4-shared-0`` or ``ConfigMap gpu-operator/a``; other resources by type and name."""
    metadata = (step.change.before.get("metadata") or {}) if step.change else {}
    if step.type.startswith("kubernetes:") and isinstance(metadata, dict) and metadata.get("name"):
        prefix = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        return f"{step.type.rpartition(':')[2]} {prefix}{metadata['name']}"
    return f"{step.type} {step.name}"


def _cluster_findings(
    env: Environment, rules: DriftRules, stack: str, kubeconfig: Path, context: str | None
) -> Iterator[Finding]:
    from kr8s.objects import ConfigMap, Node

    try:
        with translate_errors():
            api = create_api(kubeconfig, context)
            live_nodes = list_objects(api, Node)
            namespaces = {item["metadata"]["namespace"] for item in nodes.planned_config_maps(env)}
            config_maps = [
                item for namespace in sorted(namespaces) for item in list_objects(api, ConfigMap, namespace)
            ]
    except (OSError, httpx.HTTPError, ValueError) as error:
        raise unreachable_failure(stack, kubeconfig, error) from None
    yield from nodes.check_nodes(env, rules, live_nodes)
    yield from nodes.check_maps(env, config_maps)
