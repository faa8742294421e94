from __future__ import annotations

import asyncio

import pytest

from gpuform.provider.handler import Call, Engine
from gpuform.provider.own.provider import Own
from gpuform.provider.properties import UNKNOWN, Secret

pytestmark = pytest.mark.unit

POOL = {"kubeconfig": "~/.kube/config", "selector": "a=b", "labels": {"x": "y"}, "taints": []}
LAYOUT = {
    "kubeconfig": "~/.kube/config",
    "selector": "a=b",
    "config": "all-1g.5gb",
    "offers": {"nvidia.com/mig-1g.5gb": 7},
}


COMPARED = ("selector", "labels", "taints", "startup", "joining")
INPUTS = ("kubeconfig", "context", *COMPARED, "sharing", "mayBeEmpty", "manager")


def _check(token, news):
    provider = Own(Engine())
    call = Call("urn", token, "n", Engine(), asyncio.Event())
    return asyncio.run(provider.handler(token).check(call, {}, news))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"selector": ""},
            ("selector", "is empty, which would match every node; write it as key=value,key2=value2"),
        ),
        ({"kubeconfig": None}, ("kubeconfig", "is missing; give a path, or the contents")),
        (
            {"lables": {}},
            (
                "lables",
                f"is not an input; the inputs are {', '.join(INPUTS)}",
            ),
        ),
        (
            {"labels": {"a": "b c"}},
            ('labels["a"]', "'b c' is not a label value; use up to 63 of A-Z a-z 0-9 - _ ."),
        ),
        (
            {"joining": {"nodes": -1, "look": "x"}},
            ("joining", "has no number of nodes; it is {nodes, look}; look is a hint for the user"),
        ),
        (
            {"joining": {"look": "x"}},
            ("joining", "has no number of nodes; it is {nodes, look}; look is a hint for the user"),
        ),
        ({"taints": [{"value": "x"}]}, ("taints[0]", "has no key; a taint is {key, value, effect}")),
        (
            {"taints": [{"key": "k", "effect": "Never"}]},
            ("taints[0].effect", "'Never' is not one of NoSchedule, PreferNoSchedule, NoExecute"),
        ),
        (
            {"taints": [{"key": "k", "effect": "NoExecute"}] * 2},
            ("taints[1]", "k:NoExecute occurs twice; keep one"),
        ),
        (
            {"startup": {"taints": [{"key": "k"}], "proof": "p"}},
            ("startup.taints[0].effect", "None is not one of NoSchedule, PreferNoSchedule, NoExecute"),
        ),
        (
            {"sharing": {"offers": {}}},
            ("sharing", "is not {label, offers}: the label that selects it, and what a node then offers"),
        ),
        (
            {"startup": {"taints": []}},
            ("startup", "has no proof; it is {taints, proof, reason}, the last two are keys of annotations"),
        ),
    ],
)
def test_what_is_wrong_with_a_pool(change, expected):
    assert _check("gpuform:nodes:PoolNodes", POOL).failures == []
    assert _check("gpuform:nodes:PoolNodes", {**POOL, **change}).failures == [expected]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"config": ""}, ("config", "'' is not a layout name; it must be a valid label value")),
        ({"offers": {}}, ("offers", "is empty; say what each node offers with this layout")),
        (
            {"offers": {"cpu": 1}},
            ('offers["cpu"]', "1 is not a count of a resource nvidia.com/...; give a whole number"),
        ),
        (
            {"offers": {"nvidia.com/gpu": 0.5}},
            (
                'offers["nvidia.com/gpu"]',
                "0.5 is not a count of a resource nvidia.com/...; give a whole number",
            ),
        ),
        ({"timeoutSeconds": 0}, ("timeoutSeconds", "0 is not a timeout; give seconds above 0")),
        ({"inUse": "kill"}, ("inUse", "'kill' is not one of drain, refuse")),
        (
            {"maxUnavailable": 0},
            ("maxUnavailable", "0 is not a number of nodes; give 1 or more, or a share such as '25%'"),
        ),
        (
            {"maxUnavailable": "0%"},
            ("maxUnavailable", "'0%' is not a number of nodes; give 1 or more, or a share such as '25%'"),
        ),
        (
            {"maxUnavailable": True},
            ("maxUnavailable", "True is not a number of nodes; give 1 or more, or a share such as '25%'"),
        ),
    ],
)
def test_what_is_wrong_with_a_layout(change, expected):
    assert _check("gpuform:nodes:MigLayout", LAYOUT).failures == []
    assert _check("gpuform:nodes:MigLayout", {**LAYOUT, **change}).failures == [expected]


def test_what_is_unknown_is_not_judged():
    unknown = {"kubeconfig": UNKNOWN, "selector": UNKNOWN, "labels": UNKNOWN, "taints": [UNKNOWN]}
    assert _check("gpuform:nodes:PoolNodes", unknown).failures == []


def test_a_kubeconfig_given_as_contents_becomes_a_secret():
    contents = "apiVersion: v1\nkind: Config\n"
    assert _check("gpuform:nodes:PoolNodes", {**POOL, "kubeconfig": contents}).inputs["kubeconfig"] == Secret(
        contents
    )
    assert _check("gpuform:nodes:PoolNodes", POOL).inputs["kubeconfig"] == "~/.kube/config"


def test_a_layout_has_ten_minutes_where_nothing_is_said():
    assert _check("gpuform:nodes:MigLayout", LAYOUT).inputs["timeoutSeconds"] == 600
