"""What the resource types refuse: the property and the reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuform.provider.handler import Engine
from gpuform.provider.own.provider import GpuformProvider
from gpuform.provider.properties import UNKNOWN, Secret
from tests.provider.conftest import call_for
from tests.provider.workloads.conftest import TOKEN, WorkloadDriver

pytestmark = pytest.mark.unit

POOL, MIG = "gpuform:nodes:PoolNodes", "gpuform:nodes:MigLayout"
NODES = "gpuform:nodes:SimulatedNodes"
HOSTS = "gpuform:hosts:HostConfiguration"
PATH = "~/.kube/config"
GOOD: dict[str, dict[str, Any]] = {
    POOL: {"kubeconfig": PATH, "selector": "a=b", "labels": {"x": "y"}, "taints": []},
    NODES: {"kubeconfig": PATH, "labels": {"gpuform.io/pool": "a"}, "nodes": {"a-0": {}}},
    MIG: {
        "kubeconfig": PATH,
        "selector": "a=b",
        "config": "all-1g.5gb",
        "offers": {"nvidia.com/mig-1g.5gb": 7},
    },
    HOSTS: {"inventory": '{"_meta": {"hostvars": {"a": {}}}}', "content": "1"},
    TOKEN: WorkloadDriver(PATH, "w", TOKEN).declare(replicas=4),
}
NO_NUMBER = "has no number of nodes; it is {nodes, look}; look is a hint for the user"
NO_COUNT = "is not a count of a resource nvidia.com/...; give a whole number"
NO_BUDGET = "is not a number of nodes; give 1 or more, or a share such as '25%'"
NO_EFFECT = "is not one of NoSchedule, PreferNoSchedule, NoExecute"
MISSING = "is missing; give a path, or the contents"
AS_LISTED = "give it as `ansible-inventory --list` prints it"
NO_INPUT = "is not an input; the inputs are kubeconfig, context,"


def check(token: str, news: dict[str, Any]) -> Any:
    return asyncio.run(GpuformProvider(Engine()).handler(token).check(call_for(token), {}, news))


@pytest.mark.parametrize(
    ("token", "change", "at", "reason"),
    [
        (POOL, {"selector": ""}, "selector",
         "is empty, which would match every node; write it as key=value,key2=value2"),
        (POOL, {"kubeconfig": None}, "kubeconfig", MISSING),
        (POOL, {"lables": {}}, "lables",
         f"{NO_INPUT} selector, labels, taints, startup, joining, sharing, mayBeEmpty, manager"),
        (POOL, {"labels": {"a": "b c"}}, 'labels["a"]',
         "'b c' is not a label value; use up to 63 of A-Z a-z 0-9 - _ ."),
        (POOL, {"joining": {"nodes": -1, "look": "x"}}, "joining", NO_NUMBER),
        (POOL, {"joining": {"look": "x"}}, "joining", NO_NUMBER),
        (POOL, {"taints": [{"value": "x"}]}, "taints[0]", "has no key; a taint is {key, value, effect}"),
        (POOL, {"taints": [{"key": "k", "effect": "Never"}]}, "taints[0].effect", f"'Never' {NO_EFFECT}"),
        (POOL, {"taints": [{"key": "k", "effect": "NoExecute"}] * 2}, "taints[1]",
         "k:NoExecute occurs twice; keep one"),
        (POOL, {"startup": {"taints": [{"key": "k"}], "proof": "p"}}, "startup.taints[0].effect",
         f"None {NO_EFFECT}"),
        (POOL, {"sharing": {"offers": {}}}, "sharing",
         "is not {label, offers}: the label that selects it, and what a node then offers"),
        (POOL, {"startup": {"taints": []}}, "startup",
         "has no proof; it is {taints, proof, reason}, the last two are keys of annotations"),
        (NODES, {"kubeconfig": ""}, "kubeconfig", MISSING),
        (NODES, {"labels": {}}, "labels", "has no gpuform.io/pool, by which nodes of the pool are found"),
        (NODES, {"nodes": ["a-0"]}, "nodes", "is not a mapping from the nodes' names to {}"),
        (MIG, {"config": ""}, "config", "'' is not a layout name; it must be a valid label value"),
        (MIG, {"offers": {}}, "offers", "is empty; say what each node offers with this layout"),
        (MIG, {"offers": {"cpu": 1}}, 'offers["cpu"]', f"1 {NO_COUNT}"),
        (MIG, {"offers": {"nvidia.com/gpu": 0.5}}, 'offers["nvidia.com/gpu"]', f"0.5 {NO_COUNT}"),
        (MIG, {"timeoutSeconds": 0}, "timeoutSeconds", "0 is not a timeout; give seconds above 0"),
        (MIG, {"inUse": "kill"}, "inUse", "'kill' is not one of drain, refuse"),
        (MIG, {"maxUnavailable": 0}, "maxUnavailable", f"0 {NO_BUDGET}"),
        (MIG, {"maxUnavailable": "0%"}, "maxUnavailable", f"'0%' {NO_BUDGET}"),
        (MIG, {"maxUnavailable": True}, "maxUnavailable", f"True {NO_BUDGET}"),
        (TOKEN, {"kubeconfig": None}, "kubeconfig", MISSING),
        (TOKEN, {"deployment": None}, "deployment", "is missing; give the manifest"),
        (TOKEN, {"service": {"metadata": {"name": "x", "namespace": "default"}}}, "service.metadata",
         "must have the Deployment's name and namespace"),
        (TOKEN, {"step": 5}, "step", "5 is not between 1 and 4"),
        (TOKEN, {"switchAt": 4}, "switchAt", "4 is not between 1 and 3"),
        (TOKEN, {"switchAt": 0}, "switchAt", "0 is not between 1 and 3"),
        (TOKEN, {"deadlineSeconds": 0}, "deadlineSeconds", "0 is not 1 or more"),
        (TOKEN, {"steps": 1}, "steps", f"{NO_INPUT} deployment, service, step, switchAt, deadlineSeconds"),
        (HOSTS, {"inventory": "hosts: x"}, "inventory",
         f"is not JSON (Expecting value: line 1 column 1 (char 0)); {AS_LISTED}"),
        (HOSTS, {"inventory": "{}"}, "inventory", f"has no _meta.hostvars; {AS_LISTED}"),
        (HOSTS, {"inventory": '{"_meta": {"hostvars": {}}}'}, "inventory",
         "has no host; declare pools with hosts"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_refused_with_its_property_and_the_reason(
    token: str, change: dict[str, Any], at: str, reason: str
) -> None:
    assert check(token, GOOD[token]).failures == []
    assert check(token, {**GOOD[token], **change}).failures == [(at, reason)]


@pytest.mark.parametrize(
    ("token", "unknown"),
    [
        (POOL, {"kubeconfig": UNKNOWN, "selector": UNKNOWN, "labels": UNKNOWN, "taints": [UNKNOWN]}),
        (TOKEN, {"kubeconfig": UNKNOWN, "deployment": UNKNOWN}),
    ],
)
def test_an_unknown_input_is_not_judged(token: str, unknown: dict[str, Any]) -> None:
    assert check(token, {**GOOD[token], **unknown}).failures == []


def test_a_kubeconfig_given_as_contents_becomes_a_secret() -> None:
    contents = "apiVersion: v1\nkind: Config\n"
    inputs = check(POOL, {**GOOD[POOL], "kubeconfig": contents}).inputs
    assert inputs["kubeconfig"] == Secret(contents)
    assert check(POOL, GOOD[POOL]).inputs["kubeconfig"] == PATH


def test_an_input_that_is_not_given_has_a_default() -> None:
    assert check(MIG, GOOD[MIG]).inputs["timeoutSeconds"] == 600
    without_deadline = {key: value for key, value in GOOD[TOKEN].items() if key != "deadlineSeconds"}
    inputs = check(TOKEN, without_deadline).inputs
    assert (inputs["step"], inputs["deadlineSeconds"]) == (1, 600)
