"""How a plan changes the state: no engine, no cluster, no AWS."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from gpuform.engine.pending import operations, require_none
from gpuform.errors import Failure
from gpuform.recover import Plan, Step
from gpuform.recover import state as states

pytestmark = pytest.mark.unit

SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
PROVIDER = {"urn": "p", "id": "1", "type": "pulumi:providers:aws", "inputs": {"region": "r"}}


def op(urn: str, kind: str = "creating", type: str = "aws:ec2/vpc:Vpc") -> dict[str, Any]:
    resource = {"urn": urn, "type": type, "inputs": {"a": 1}, "provider": "p::1", "parent": "stack"}
    return {"type": kind, "resource": resource}


def state(*pending: dict[str, Any], resources: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "version": 3,
        "deployment": {"resources": [PROVIDER, *resources], "pending_operations": [*pending]},
    }


def step(urn: str, does: Any, was: str = "creating", id: str | None = None) -> Step:
    return Step(urn, "t", was, does, "", id)


def test_what_was_made_becomes_a_resource_that_is_read_again() -> None:
    before = state(op("a"), op("b"))
    kept = copy.deepcopy(before)
    after, again = states.edited(before, [step("a", "import", id="vpc-1"), step("b", "clear")])
    assert before == kept
    assert again == ["a"]
    made = {**op("a")["resource"], "id": "vpc-1", "outputs": {}}
    assert after["deployment"] == {"resources": [PROVIDER, made]}


def test_what_was_to_be_replaced_is_still_to_go() -> None:
    old = {"urn": "a", "type": "t", "id": "vpc-0"}
    after, _ = states.edited(state(op("a"), resources=(old,)), [step("a", "import", id="vpc-1")])
    _, replaced, made = after["deployment"]["resources"]
    assert replaced == {**old, "delete": True}
    assert (made["id"], "delete" in made) == ("vpc-1", False)


def test_what_was_changing_is_read_again_where_the_state_has_it() -> None:
    have = {"urn": "a", "type": "t", "id": "1"}
    before = state(op("a", "updating"), op("b", "reading"), resources=(have,))
    planned = [step("a", "refresh", "updating"), step("b", "clear", "reading")]
    after, again = states.edited(before, planned)
    assert again == ["a"]
    assert after["deployment"] == {"resources": [PROVIDER, have]}


def test_what_was_put_there_and_never_read_is_still_to_do() -> None:
    after, _ = states.edited(state(op("urn::a")), [step("urn::a", "import", id="vpc-1")])
    after["deployment"]["resources"][1]["custom"] = True
    (left,) = operations(after)
    assert (left.kind, left.name) == ("importing", "a")
    with pytest.raises(Failure, match="an interrupted run was making a"):
        require_none(after, "prod")
    after["deployment"]["resources"][1]["outputs"] = {"arn": "x"}
    require_none(after, "prod")


def test_a_state_that_has_changed_makes_the_plan_void() -> None:
    plan = Plan("prod", "file://x", state=state(op("a")))
    states.require_planned(plan, state(op("a")))
    assert states.same(
        {"deployment": {"resources": [SECRET | {"plaintext": "1"}]}},
        {"deployment": {"resources": [SECRET | {"ciphertext": "x"}]}},
    )
    for other in (state(), state(op("a"), resources=({"urn": "a", "id": "1"},))):
        with pytest.raises(Failure, match="stack prod: its state has changed meanwhile"):
            states.require_planned(plan, other)


def test_secrets_are_read_and_never_shown() -> None:
    hidden = {**SECRET, "plaintext": json.dumps({"kubeconfig": "k", "more": {**SECRET, "plaintext": '"m"'}})}
    assert states.plain([hidden, {"b": hidden}])[0] == {"kubeconfig": "k", "more": "m"}
    assert states.plain({**SECRET, "ciphertext": "x"}) is None
    plan = Plan("prod", "file://x", state={"deployment": {"resources": [{"inputs": "hush"}]}})
    assert "hush" not in repr(plan) + json.dumps(plan.to_json())


def test_an_up_says_what_was_being_made_and_how_to_go_on() -> None:
    many = [op(f"urn:pulumi:prod::g::aws:ec2/vpc:Vpc::v{number}") for number in range(5)]
    assert [one.name for one in operations(state(*many))] == ["v0", "v1", "v2", "v3", "v4"]
    with pytest.raises(Failure) as caught:
        require_none(state(*many), "prod")
    shown = ", ".join(f"v{number} (aws:ec2/vpc:Vpc)" for number in range(3))
    assert str(caught.value) == (
        f"stack prod: an interrupted run was making {shown} and 2 more, which may be there already; "
        "run 'gpuform recover prod', which looks for it"
    )
    require_none(state(op("a", "updating"), op("b", "deleting")), "prod")
