"""Looks for drift in one stack; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, Step
from gpuform.engine.files import Tools
from gpuform.kubernetes.kubeconfig_errors import translate_errors, unreachable_failure
from gpuform.kubernetes.session import create_api, list_objects
from gpuform.stack.cluster_access import ClusterAccess, stack_kubeconfig
from gpuform.stack.drift import nodes
from gpuform.stack.drift.rules import Drift, DriftRules, Finding
from infra.model.environment import Environment

Say = Callable[[str], None]


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
    say(f"refreshing the resources of {stack}")
    result = engine.drift(stack, on_event=lambda event: None)
    pairs = ((step, finding) for step in result.steps for finding in step_findings(step))
    findings = [finding for step, finding in pairs if not rules.is_expected(env, step, finding.path)]
    say(f"reading the cluster of {stack}")
    with stack_kubeconfig(env, reach, paths, engine, stack) as (kubeconfig, context):
        return Drift.merge(stack, findings, _cluster_findings(env, rules, stack, kubeconfig, context))


def step_findings(step: Step) -> Iterator[Finding]:
    """Findings from the engine's refresh of one resource, path by path; never a value."""
    if step.type == "pulumi:pulumi:Stack" or step.phase not in ("planned", "done"):
        return
    resource = resource_name(step)
    if step.op == "delete":
        yield Finding(resource, "", "missing", "engine")
        return
    for path in step.change.paths if step.change else ():
        yield Finding(resource, path, "changed", "engine")


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
