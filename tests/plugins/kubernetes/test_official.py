"""One program through the official provider and through the stand-in."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.cluster, pytest.mark.nightly]

PROGRAM = """
here = {{"namespace": namespace}}
cm = ConfigMap("cm", metadata=here, data={{"a": "{0}"}}, opts=opts)
named = ConfigMap("named", metadata={{**here, "name": "named"}}, data={{"a": "{0}"}}, opts=opts)
secret = Secret("secret", metadata=here, string_data={{"p": Output.secret("x")}}, opts=opts)
service = Service("service", metadata=here,
    spec={{"selector": {{"a": "w"}}, "ports": [{{"port": 80}}], "cluster_ip": "None"}}, opts=opts)
low = PriorityClass("low", metadata={{"name": "low"}}, value=-10, opts=opts)
"""


def shapes(state: dict[str, Any]) -> dict[str, Any]:
    """What the state keeps of each resource, without what differs from run to run."""
    return {
        resource["urn"]: (sorted(resource.get("inputs", {})), sorted(resource.get("outputs", {})))
        for resource in state["deployment"]["resources"]
        if resource["type"].startswith("kubernetes:")
    }


def life(stack: Any) -> dict[str, Any]:
    """What a stack's life comes to: counts of each run, and the state in between."""
    found = {"create": stack.up(PROGRAM.format("x")).changes, "again": stack.up(PROGRAM.format("x")).changes}
    found["change"] = stack.up(PROGRAM.format("y")).changes
    found["state"] = shapes(stack.engine.export())
    found["destroy"] = stack.engine.destroy().changes
    return found


def test_both_make_keep_change_and_delete_the_same(stack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    official = stack.toolchain.path("pulumi-resource-kubernetes")
    monkeypatch.setenv("PATH", f"{official.parent}{os.pathsep}{os.environ['PATH']}")
    theirs = life(stack)
    monkeypatch.setattr("gpuform.engine.standins._official", lambda ours, places: None)
    assert life(stack) == theirs
