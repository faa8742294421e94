from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from gpuform.engine import Step
from gpuform.engine.events import Change
from gpuform.reports import stack as report
from gpuform.stack.drift import nodes
from gpuform.stack.drift.rules import Drift, DriftRules, Finding
from gpuform.stack.drift.run import step_findings
from infra.config import parse
from infra.model.environment import Environment
from infra.model.pool import plugin_config
from infra.plan.gpu_operator import driver_version
from infra.plan.sharing import pool_labels, pool_taints
from tests.build.aws_environments import TABLE
from tests.build.aws_stacks import small
from tests.build.environments import on

pytestmark = pytest.mark.unit

CUT = {"kind": "mig", "layout": "all-1g.5gb"}
SHARED = {"kind": "time_slicing", "replicas": 4}
EMBEDDED = on(
    "embedded",
    {"name": "mig", "machine": "g4.p1.40g", "sharing": CUT},
    {"name": "t4", "machine": "g2.5xlarge", "sharing": SHARED},
    {"name": "cpu", "machine": "m6i.xlarge"},
)
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
MIG = 'metadata.labels["nvidia.com/mig.config{}"]'
DRIVER = "nvidia.com/cuda.driver-version.full"
DRIVER_AT = f'metadata.labels["{DRIVER}"]'
OUT_OF_USE = {"key": "gpuform.io/gpu-unhealthy", "value": "replace", "effect": "NoSchedule"}


def live_nodes() -> dict[str, dict[str, Any]]:
    """Nodes without drift, typed by hand."""
    ours = {"gpuform.io/environment": "e"}
    plugin = "nvidia.com/device-plugin.config"
    gpu = {**ours, DRIVER: driver_version(EMBEDDED)}
    mig = {"nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.config.state": "success"}
    labels = {
        "mig-0": {**gpu, **mig, "gpuform.io/pool": "mig", plugin: plugin_config.key(EMBEDDED.pools[0])},
        "t4-0": {**gpu, "gpuform.io/pool": "t4", plugin: plugin_config.key(EMBEDDED.pools[1])},
        "cpu-0": {**ours, "gpuform.io/pool": "cpu"},
    }
    offers = {
        "mig-0": {"nvidia.com/mig-1g.5gb": "7", "nvidia.com/gpu": "0"},
        "t4-0": {"nvidia.com/gpu.shared": "4"},
    }
    return {
        name: {
            "metadata": {"name": name, "labels": has},
            "spec": {"taints": [dict(TAINT)]} if name in offers else {},
            "status": {"allocatable": {"cpu": "8", **offers.get(name, {})}},
        }
        for name, has in labels.items()
    }


def labels(live: dict[str, dict[str, Any]], name: str) -> dict[str, str]:
    has: dict[str, str] = live[name]["metadata"]["labels"]
    return has


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda live: None, []),
        (lambda live: live.update(other={"metadata": {"name": "other"}}), []),
        (lambda live: live["t4-0"]["spec"]["taints"].append({"key": "mine", "effect": "NoSchedule"}),
         [("Node t4-0", "spec.taints[mine:NoSchedule]", "added", "none", "no value")]),
        (lambda live: live["t4-0"]["spec"]["taints"].append(
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}), []),
        (lambda live: labels(live, "t4-0").pop("gpuform.io/pool"),
         [("Node t4-0", 'metadata.labels["gpuform.io/pool"]', "missing", "t4", "none")]),
        (lambda live: labels(live, "mig-0").update({"nvidia.com/mig.config": "all-disabled"}),
         [("Node mig-0", MIG.format(""), "changed", "all-1g.5gb", "all-disabled")]),
        (lambda live: labels(live, "mig-0").update({"nvidia.com/mig.config.state": "failed"}),
         [("Node mig-0", MIG.format(".state"), "changed", "success", "failed")]),
        (lambda live: labels(live, "t4-0").update({DRIVER: "1.2.3"}),
         [("Node t4-0", DRIVER_AT, "changed", labels(live_nodes(), "t4-0")[DRIVER], "1.2.3")]),
        (lambda live: live["t4-0"]["spec"].clear(),
         [("Node t4-0", "spec.taints[nvidia.com/gpu:NoSchedule]", "missing", "true", "none")]),
        (lambda live: live["t4-0"]["spec"]["taints"][0].update(value="no"),
         [("Node t4-0", "spec.taints[nvidia.com/gpu:NoSchedule]", "changed", "true", "no")]),
        (lambda live: live["mig-0"]["status"]["allocatable"].update({"nvidia.com/mig-1g.5gb": "6"}),
         [("Node mig-0", 'status.allocatable["nvidia.com/mig-1g.5gb"]', "changed", "7", "6")]),
        (lambda live: live["cpu-0"]["status"]["allocatable"].update({"nvidia.com/gpu": "1"}),
         [("Node cpu-0", 'status.allocatable["nvidia.com/gpu"]', "changed", "0", "1")]),
        (lambda live: live.pop("cpu-0"), [("Node cpu-0", "", "missing", "a node of pool cpu", "none")]),
        (lambda live: live["t4-0"]["spec"].update(
            taints=[{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}]), []),
        (lambda live: (live["t4-0"]["spec"]["taints"].append(OUT_OF_USE),
                       live["t4-0"]["status"]["allocatable"].clear()), []),
        (lambda live: live["t4-0"]["spec"].update(taints=[OUT_OF_USE]),
         [("Node t4-0", "spec.taints[nvidia.com/gpu:NoSchedule]", "missing", "true", "none")]),
    ],
)  # fmt: skip
def test_nodes(change: Callable[[dict[str, dict[str, Any]]], Any], message: list[tuple[str, ...]]) -> None:
    live = live_nodes()
    change(live)
    found = nodes.check_nodes(EMBEDDED, DriftRules(), live.values())
    assert [(one.resource, one.path, one.how, one.expected, one.found) for one in found] == message


@pytest.mark.parametrize(("count", "found"), [(0, []), (4, []), (5, [("nodes", "added", "0 to 4", "5")])])
def test_a_node_group_that_others_scale_has_any_number_of_nodes_within_its_bounds(
    count: int, found: list[tuple[str, ...]]
) -> None:
    scaling = {"min": 0, "max": 4}
    env = parse(small({"name": "cpu", "machine": "m6i.xlarge", "nodes": 2, "aws": {"scaling": scaling}}))
    carried = pool_labels(env, env.pools[0])
    live = [{"metadata": {"name": f"n-{index}", "labels": carried}} for index in range(count)]
    findings = nodes.check_nodes(env, DriftRules(), live)
    assert [(one.path, one.how, one.expected, one.found) for one in findings] == found


def test_nodes_out_of_use_are_those_of_this_environment() -> None:
    live = live_nodes()
    for name in ("mig-0", "t4-0"):
        live[name]["spec"]["taints"].append(OUT_OF_USE)
    labels(live, "mig-0")["gpuform.io/environment"] = "other"
    labels(live, "t4-0")["gpuform.io/environment"] = EMBEDDED.name
    assert list(nodes.out_of_use(EMBEDDED, live.values())) == ["t4-0"]


def test_nodes_of_an_existing_cluster_are_those_that_the_selector_finds() -> None:
    env = on("existing", {"name": "t4", "machine": "g2.5xlarge", "selector": {"rack": "7"}})
    (none,) = nodes.check_nodes(env, DriftRules(), [])
    wanted = "a node that its selector matches"
    assert (none.resource, none.how, none.expected) == ("pool t4", "missing", wanted)
    bare = {"metadata": {"name": "n", "labels": {"rack": "7"}}, "spec": {}, "status": {}}
    paths = {one.path for one in nodes.check_nodes(env, DriftRules(), [bare])}
    assert 'metadata.labels["gpuform.io/pool"]' in paths, "a node that has lost our label is still ours"


def node_of(env: Environment, offers: dict[str, str], **labels: str) -> dict[str, Any]:
    """A node with what the plan gives those of the first pool, and with these labels."""
    return {
        "metadata": {"name": "h0", "labels": {**pool_labels(env, env.pools[0]), "pool": "p0", **labels}},
        "spec": {"taints": pool_taints(env, env.pools[0])},
        "status": {"allocatable": offers},
    }


@pytest.mark.parametrize(
    ("kind", "operator", "drifted"),
    [
        ("hosts", {}, False),
        ("existing", {"driver": "host"}, False),
        ("existing", {"mode": "device_plugin"}, False),
        ("existing", {}, True),
    ],
)
def test_only_the_operators_own_driver_can_drift(kind: str, operator: dict[str, str], drifted: bool) -> None:
    env = on(kind, {"gpu": {"models": ["T4"], "count": 1}}, gpu_operator=operator)
    node = node_of(env, {"nvidia.com/gpu": "1"}, **{DRIVER: "550.163.01"})
    found = [one.path for one in nodes.check_nodes(env, DriftRules(), [node])]
    assert found == [DRIVER_AT] * drifted


GPUS = "karpenter.k8s.aws/instance-gpu-count"


@pytest.mark.parametrize(
    ("count", "shares", "message"),
    [
        ("1", "3", []),
        ("4", "12", []),
        ("4", "1k", [('status.allocatable["nvidia.com/gpu.shared"]', "changed", "12", "1000")]),
        ("4", "3", [('status.allocatable["nvidia.com/gpu.shared"]', "changed", "12", "3")]),
        ("1", "1k", [('status.allocatable["nvidia.com/gpu.shared"]', "changed", "3", "1000")]),
        ("8", "24", [(f'metadata.labels["{GPUS}"]', "changed", "1 or 4", "8")]),
        ("", "3", [(f'metadata.labels["{GPUS}"]', "missing", "1 or 4", "none")]),
    ],
)
def test_nodes_that_differ_in_gpus_are_each_measured_by_their_own(
    count: str, shares: str, message: list[tuple[str, ...]]
) -> None:
    env = TABLE["several counts"]
    live = node_of(env, {"nvidia.com/gpu.shared": shares}, **{GPUS: count})
    found = nodes.check_nodes(env, DriftRules(), [live])
    assert [(one.path, one.how, one.expected, one.found) for one in found] == message


def test_config_maps_drift_key_by_key() -> None:
    live = [copy.deepcopy(dict(one)) for one in nodes.planned_config_maps(EMBEDDED)]
    assert list(nodes.check_maps(EMBEDDED, live)) == []
    sharing, mig = live
    sharing["data"]["mine"] = "x"
    sharing["data"]["default"] = "y"
    name = f"ConfigMap gpu-operator/{sharing['metadata']['name']}"
    other = f"ConfigMap gpu-operator/{mig['metadata']['name']}"
    assert set(nodes.check_maps(EMBEDDED, [sharing])) == {
        Finding(name, "data.default", "changed", "cluster"),
        Finding(name, "data.mine", "added", "cluster"),
        Finding(other, "", "missing", "cluster", "a ConfigMap", "none"),
    }
    del mig["data"]["config.yaml"]
    paths = [one.path for one in nodes.check_maps(EMBEDDED, [mig]) if one.resource == other]
    assert paths == ['data["config.yaml"]']


URN = "urn:pulumi:local::gpuform::gpuform:platform:Part$kubernetes:core/v1:{}::part-t4-0"


def step(op: str, kind: str, *paths: str) -> Step:
    before = {"metadata": {"name": "t4-0", "namespace": "n"}, "data": {"a": "hush"}}
    return Step(op, URN.format(kind), "planned", Change(before, {}, paths))  # type: ignore[arg-type]


def test_engine_findings_of_secrets_have_a_path_and_no_value() -> None:
    stack = Step("update", "urn:pulumi:local::gpuform::pulumi:pulumi:Stack::gpuform-local", "planned")
    steps = (step("update", "Secret", "data.a", "data.b"), step("delete", "Pod"), stack)
    told = [finding for one in steps for finding in step_findings(one)]
    assert told == [
        Finding("Secret n/t4-0", "data.a", "missing", "engine"),
        Finding("Secret n/t4-0", "data.b", "missing", "engine"),
        Finding("Pod n/t4-0", "", "missing", "engine"),
    ]
    assert "hush" not in str(told)


def test_engine_findings_of_a_pool_are_of_its_nodes_and_merge_with_those_of_the_cluster() -> None:
    template = {"labels": {"a.b/c": "1", "d": "2"}, "annotations": {"e": "3"}, "taints": [TAINT]}
    live = {
        "metadata": {"labels": {"a.b/c": "", "d": "4"}, "annotations": {"e": "5"}},
        "spec": {"taints": []},
    }
    declared = {**template, "nodes": {"t4-0": {}, "t4-1": {}}}
    paths = (
        *('nodes.t4-0.metadata.labels["a.b/c"]', "nodes.t4-0.metadata.labels.d"),
        *("nodes.t4-0.metadata.annotations.e", "nodes.t4-0.spec.taints", "nodes.t4-1"),
    )
    urn = "urn:pulumi:local::gpuform::gpuform:platform:NodePools$gpuform:nodes:SimulatedNodes::pools-t4"
    change = Change(declared, {**template, "nodes": {"t4-0": live}}, paths)
    found = [*step_findings(Step("update", urn, "planned", change))]
    assert found == [
        Finding("Node t4-0", 'metadata.labels["a.b/c"]', "missing", "engine", "1", ""),
        Finding("Node t4-0", "metadata.labels.d", "changed", "engine", "2", "4"),
        Finding("Node t4-0", "metadata.annotations.e", "changed", "engine", "3", "5"),
        Finding("Node t4-0", "spec.taints", "missing", "engine", "", ""),
        Finding("Node t4-1", "", "missing", "engine"),
    ]
    cluster = [
        Finding("Node t4-0", "spec.taints[nvidia.com/gpu:NoSchedule]", "missing", "cluster", "true", "none"),
        Finding("Node t4-1", "", "missing", "cluster", "a node of pool t4", "none"),
    ]
    assert {*Drift.merge("local", found, cluster).findings} == {*cluster, *found[:3]}


def pod(image: str, replicas: int | None, variable: str, password: str) -> dict[str, Any]:
    container = {"name": "web", "image": image, "env": [{"name": "A", "value": variable}]}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": "web", "namespace": "n", "annotations": {"a.b/c": "1\n2", "password": password}}
    return {"metadata": metadata, "spec": spec}


def test_engine_findings_name_list_entries() -> None:
    paths = (
        "spec.replicas",
        "spec.template.spec.containers[0].image",
        "spec.template.spec.containers[0].env[0].value",
        "metadata.annotations.password",
        'metadata.annotations["a.b/c"]',
    )
    change = Change(pod("web:1", 1, "x", "hush"), pod("web:2", None, "y", "hash"), paths)
    found = step_findings(Step("update", URN.format("Deployment"), "planned", change))
    assert [(one.path, one.how, one.expected, one.found) for one in found] == [
        ("spec.replicas", "missing", "1", ""),
        ("spec.template.spec.containers[web].image", "changed", "web:1", "web:2"),
        ("spec.template.spec.containers[web].env[A].value", "changed", "", ""),
        ("metadata.annotations.password", "changed", "", ""),
        ('metadata.annotations["a.b/c"]', "changed", "", ""),
    ]


@pytest.mark.parametrize("path", ["spec.taints[0].key", "spec.taints"])
def test_taint_findings_are_the_clusters_by_name(path: str) -> None:
    by_engine = [Finding("Node a", path, "changed", "engine", "x", "y")]
    by_cluster = [Finding("Node a", "spec.taints[y:NoSchedule]", "added", "cluster", "none", "no value")]
    assert Drift.merge("s", by_engine, by_cluster).findings == tuple(by_cluster)
    assert Drift.merge("s", by_engine, []).findings == tuple(by_engine)


def test_finding_of_engine_and_cluster_is_listed_once() -> None:
    by_engine = [Finding("Node a", "", "missing", "engine"), Finding("Node b", "spec.x", "changed", "engine")]
    by_cluster = [Finding("Node a", "", "missing", "cluster", "a node", "none")]
    drift = Drift.merge("s", [*by_engine, *by_engine], by_cluster)
    assert drift.findings == (by_cluster[0], by_engine[1])
    keys = ("resource", "path", "how", "by", "expected", "found")
    values = (("Node a", "", "missing", "cluster", "a node", "none"),
              ("Node b", "spec.x", "changed", "engine", "", ""))  # fmt: skip
    findings = [dict(zip(keys, own, strict=True)) for own in values]
    assert drift.to_json() == {"stack": "s", "drift": True, "out_of_use": [], "findings": findings}


def rendered(drift: Drift, repaired: Drift | None = None) -> str:
    written = io.StringIO()
    console = Console(width=200, file=written)
    for part in report.drift_parts(drift, repaired):
        console.print(part)
    return written.getvalue()


def test_the_table_names_keys_in_brackets_and_counts() -> None:
    one = Finding("Node a", 'metadata.labels["x.io/y"]', "changed", "cluster", "[1]", "2")
    text = rendered(Drift("s", (one,)))
    assert [part in text for part in ('metadata.labels["x.io/y"]', "[1]")] == [True, True]
    restores = "`gpuform drift s --repair` restores what is declared"
    assert text.splitlines()[-1] == f"s: drift, 1 in 1 resource; {restores}"
    assert rendered(Drift("s", ())) == "s: no drift\n"


def test_no_repair_is_advised_for_what_a_fault_took() -> None:
    lost = Finding("Node a", 'status.allocatable["nvidia.com/gpu"]', "changed", "cluster", "4", "3")
    advice = "`--repair` brings back no GPU that a fault took: see `gpuform status s`"
    assert rendered(Drift("s", (lost,))).splitlines()[-1] == f"s: drift, 1 in 1 resource; {advice}"
    out_of_use = Drift("s", (), ("a", "b"))
    note = "no drift: the taint of the health loop on a, b, and GPUs that they lack; see `gpuform status s`"
    assert rendered(out_of_use).splitlines() == [note, "s: no drift"]
    assert out_of_use.to_json() == {"stack": "s", "drift": False, "out_of_use": ["a", "b"], "findings": []}


def test_after_a_repair_it_is_said_what_was_repaired_and_what_remains() -> None:
    one, two = (Finding(f"Node {name}", "spec.x", "changed", "cluster", "1", "2") for name in "ab")
    before = Drift("s", (one, two))
    assert rendered(Drift("s", ()), before) == "s: repaired 2 in 2 resources; no drift\n"
    last = rendered(Drift("s", (two,)), before).splitlines()[-1]
    assert last.startswith(
        "s: repaired 1 in 1 resource; drift, 1 in 1 resource; it is broken or changed again: "
    )
    assert "`gpuform status s`" in last
    assert rendered(before, before).splitlines()[-1].startswith("s: drift, 2 in 2 resources; it is broken")
    assert "--repair" not in last
