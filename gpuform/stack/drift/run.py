"""Looks for drift in one stack; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, Step
from gpuform.engine.places import Tools
from gpuform.kubernetes.kubeconfigs import answered, unreachable
from gpuform.stack.cluster_access import ClusterAccess, cluster
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
    found = [one for step in result.steps for one in of_step(step) if not rules.expected(env, step, one.path)]
    say(f"reading the cluster of {stack}")
    with cluster(env, reach, paths, engine, stack) as (kubeconfig, context):
        return Drift.of(stack, found, _live(env, rules, stack, kubeconfig, context))


def of_step(step: Step) -> Iterator[Finding]:
    """Findings from the engine's refresh of one resource, path by path; never a value."""
    if step.type == "pulumi:pulumi:Stack" or step.phase not in ("planned", "done"):
        return
    resource = named(step)
    if step.op == "delete":
        yield Finding(resource, "", "missing", "engine")
        return
    for path in step.change.paths if step.change else ():
        yield Finding(resource, path, "changed", "engine")


def named(step: Step) -> str:
    """``Node t4-shared-0`` or ``ConfigMap gpu-operator/a``; other resources by type and name."""
    metadata = (step.change.before.get("metadata") or {}) if step.change else {}
    if step.type.startswith("kubernetes:") and isinstance(metadata, dict) and metadata.get("name"):
        space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        return f"{step.type.rpartition(':')[2]} {space}{metadata['name']}"
    return f"{step.type} {step.name}"


def _live(
    env: Environment, rules: DriftRules, stack: str, kubeconfig: Path, context: str | None
) -> Iterator[Finding]:
    from kr8s.objects import ConfigMap, Node

    from gpuform.kubernetes import session

    try:
        with answered():
            api = session.api(kubeconfig, context)
            there = [dict(one.raw) for one in Node.list(api=api) if isinstance(one, Node)]
            spaces = {one["metadata"]["namespace"] for one in nodes.planned(env)}
            found = [one for space in sorted(spaces) for one in ConfigMap.list(api=api, namespace=space)]
    except (OSError, httpx.HTTPError, ValueError) as error:
        raise unreachable(stack, kubeconfig, error) from None
    yield from nodes.check(env, rules, there)
    yield from nodes.check_maps(env, [dict(one.raw) for one in found if isinstance(one, ConfigMap)])
