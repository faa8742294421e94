"""Looks for drift in one stack; read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import key_path
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, Step
from gpuform.engine.events import SIMULATED_NODES, fields, path_steps, resource_name, shown_values
from gpuform.engine.files import Tools
from gpuform.kubernetes.cluster import Json, Reader
from gpuform.kubernetes.kinds import CONFIG_MAP, NODE
from gpuform.kubernetes.kubeconfig_errors import unreachable_failure
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
        raise no_resources(stack)
    say(f"reading the cluster of {stack}")
    with stack_kubeconfig(env, reach, paths, engine, stack) as (kubeconfig, context):
        live_nodes, config_maps = _read_cluster(env, stack, kubeconfig, context)
    of_cluster = [*nodes.check_nodes(env, rules, live_nodes), *nodes.check_maps(env, config_maps)]
    say(f"refreshing the resources of {stack}")
    result = engine.drift(stack, on_event=lambda event: None)
    pairs = ((step, finding) for step in result.steps for finding in step_findings(step))
    findings = [finding for step, finding in pairs if not rules.is_expected(env, step, finding.path)]
    return Drift.merge(stack, findings, of_cluster, nodes.out_of_use(env, live_nodes))


def no_resources(stack: str) -> Failure:
    return Failure(f"stack {stack}", "has no resources to compare", f"create them: `gpuform up {stack}`")


def remove_added_keys(
    env: Environment, reach: ClusterAccess, paths: Paths, tools: Tools, stack: str, found: Drift
) -> None:
    """Remove keys that others added to the operands' ConfigMaps, which read them; an update leaves them."""
    added = [
        item for item in found.findings if item.how == "added" and item.resource.startswith("ConfigMap ")
    ]
    if not added:
        return
    engine = Engine(paths, tools, say=lambda line: None)
    with (
        stack_kubeconfig(env, reach, paths, engine, stack) as (kubeconfig, context),
        Reader(kubeconfig, context) as cluster,
    ):
        for item in added:
            namespace, _, name = item.resource.removeprefix("ConfigMap ").partition("/")
            (key,) = path_steps(item.path)[1:]
            found_map = {"metadata": {"namespace": namespace, "name": name}}
            cluster.patch(CONFIG_MAP, found_map, {"data": {key: None}})


def step_findings(step: Step) -> Iterator[Finding]:
    """Findings from the engine's refresh of one resource, path by path."""
    if step.type == "pulumi:pulumi:Stack" or step.phase not in ("planned", "done"):
        return
    resource = resource_name(step)
    if step.op == "delete":
        yield Finding(resource, "", "missing", "engine")
        return
    if step.type == SIMULATED_NODES:
        yield from _node_findings(step)
        return
    for path, declared, actual in fields(step):
        how: Literal["changed", "missing"] = "missing" if actual is None else "changed"
        values = shown_values(step, path, declared, actual)
        yield Finding(resource, path, how, "engine", values[0], values[1])


def _node_findings(step: Step) -> Iterator[Finding]:
    """Findings on simulated nodes; a label that is missing has an empty value."""
    for path, declared, actual in fields(step):
        _, name, *field = path_steps(path)
        if not field:
            yield Finding(f"Node {name}", "", "missing", "engine")
            continue
        values = shown_values(step, path, declared, actual)
        how: Literal["changed", "missing"] = "changed" if actual else "missing"
        where = path.removeprefix(key_path("nodes", str(name))).removeprefix(".")
        yield Finding(f"Node {name}", where, how, "engine", values[0], values[1])


def _read_cluster(
    env: Environment, stack: str, kubeconfig: Path, context: str | None
) -> tuple[list[Json], list[Json]]:
    """The nodes, and the ConfigMaps of the operands' namespaces."""
    namespaces = {item["metadata"]["namespace"] for item in nodes.planned_config_maps(env)}
    try:
        with Reader(kubeconfig, context) as cluster:
            return cluster.list_objects(NODE), [
                item
                for namespace in sorted(namespaces)
                for item in cluster.list_objects(CONFIG_MAP, namespace)
            ]
    except (OSError, ValueError) as error:
        raise unreachable_failure(stack, kubeconfig, error) from None
