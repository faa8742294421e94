from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuform.provider.handler import Call, Engine
from gpuform.provider.own.provider import Own
from gpuform.provider.properties import UNKNOWN
from tests.provider.workloads.conftest import TOKEN, Stage

pytestmark = pytest.mark.unit

GOOD = Stage("~/.kube/config", "w").wanted(replicas=4)


def _check(news: dict[str, Any]) -> Any:
    call = Call("urn", TOKEN, "n", Engine(), asyncio.Event())
    return asyncio.run(Own(Engine()).handler(TOKEN).check(call, {}, news))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kubeconfig": None}, ("kubeconfig", "is missing; give a path, or the contents")),
        ({"deployment": None}, ("deployment", "is missing; give the manifest")),
        (
            {"service": {"metadata": {"name": "x", "namespace": "default"}}},
            ("service.metadata", "must have the Deployment's name and namespace"),
        ),
        ({"step": 5}, ("step", "5 is not between 1 and 4")),
        ({"switchAt": 4}, ("switchAt", "4 is not between 1 and 3")),
        ({"switchAt": 0}, ("switchAt", "0 is not between 1 and 3")),
        ({"deadlineSeconds": 0}, ("deadlineSeconds", "0 is not 1 or more")),
        (
            {"steps": 1},
            (
                "steps",
                (
                    "is not an input; the inputs are kubeconfig, context, deployment, service, step, "
                    "switchAt, deadlineSeconds"
                ),
            ),
        ),
    ],
)
def test_what_is_wrong(change: dict[str, Any], expected: tuple[str, str]) -> None:
    assert _check(GOOD).failures == []
    assert _check({**GOOD, **change}).failures == [expected]


def test_what_is_not_given_has_a_default() -> None:
    inputs = _check({key: value for key, value in GOOD.items() if key != "deadlineSeconds"}).inputs
    assert (inputs["step"], inputs["deadlineSeconds"]) == (1, 600)


def test_what_is_unknown_is_not_judged() -> None:
    assert _check({**GOOD, "kubeconfig": UNKNOWN, "deployment": UNKNOWN}).failures == []
