"""How a plan changes the state: no engine, no cluster, no AWS."""

from __future__ import annotations

import asyncio
import copy
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.clouds import RECOVERIES
from gpuform.clouds.aws.recover import AwsRecovery
from gpuform.engine.pending import GIVEN_UP, operations, require_none
from gpuform.stack.recover import Plan, Stack, Step, UserDecisions
from gpuform.stack.recover import state as states
from gpuform.stack.recover.apply import carry_out
from gpuform.stack.recover.find import _require_pending, _resolve
from tests.stack.destroy.engine_state import PlayedEngine

pytestmark = pytest.mark.unit

MAGNUM = "openstack:containerinfra/cluster:Cluster"
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
PROVIDER = {"urn": "p", "id": "1", "type": "pulumi:providers:aws", "inputs": {"region": "r"}}


def op(urn: str, kind: str = "creating", type: str = "aws:ec2/vpc:Vpc") -> dict[str, Any]:
    resource = {"urn": urn, "type": type, "inputs": {"a": 1}, "provider": "p::1", "parent": "stack"}
    return {"type": kind, "resource": resource}


def state(*pending: dict[str, Any], resources: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    deployment = {"resources": [PROVIDER, *resources], "pending_operations": [*pending]}
    return {"version": 3, "deployment": deployment}


def step(urn: str, does: Any, was: str = "creating", id: str | None = None) -> Step:
    return Step(urn, "t", was, does, "", id)


def test_what_was_made_becomes_a_resource_that_is_read_again() -> None:
    before = state(op("a"), op("b"))
    kept = copy.deepcopy(before)
    after, again = states.apply_steps(before, [step("a", "import", id="vpc-1"), step("b", "clear")])
    assert before == kept
    assert again == ["a"]
    made = {**op("a")["resource"], "id": "vpc-1", "outputs": {}}
    assert after["deployment"] == {"resources": [PROVIDER, made]}


@pytest.mark.parametrize("does", ["import", "renew"])
def test_a_cluster_of_magnum_s_is_read_with_its_inputs_and_else_waits(does: str) -> None:
    """The provider reads no mergeLabels: it would replace, and so delete, a cluster without it."""
    known = {**op("a", type=MAGNUM)["resource"], "custom": True, "outputs": {"kubeconfig": SECRET}, "id": "c"}
    before = state(op("a", type=MAGNUM)) if does == "import" else state(resources=(known,))
    after, again = states.apply_steps(before, [step("a", does, id="c")])
    made = after["deployment"]["resources"][1]
    assert (made["outputs"], made["id"], again) == ({"a": 1}, "c", ["a"])
    assert [one.kind for one in operations(after)] == [GIVEN_UP]


def test_what_failed_to_be_made_is_tainted_and_waits_no_more() -> None:
    known = {**op("a", type=MAGNUM)["resource"], "id": "c", "initErrors": ["late"], "outputs": {"b": 1}}
    known["protect"] = True
    for before in (state(op("a", type=MAGNUM)), state(resources=(known,))):
        after, again = states.apply_steps(before, [step("a", "recreate", id="c")])
        made = after["deployment"]["resources"][1]
        assert (made["taint"], made["id"], again, operations(after)) == (True, "c", [], [])
        assert not made["protect"]


def test_what_was_to_be_replaced_is_still_to_go() -> None:
    old = {"urn": "a", "type": "t", "id": "vpc-0"}
    after, _ = states.apply_steps(state(op("a"), resources=(old,)), [step("a", "import", id="vpc-1")])
    _, replaced, made = after["deployment"]["resources"]
    assert replaced == {**old, "delete": True}
    assert (made["id"], "delete" in made) == ("vpc-1", False)


def test_what_was_deleted_before_it_was_replaced_is_not_deleted_again() -> None:
    """Both have the name that the program gives: deleting the old one would delete the new."""
    old = {"urn": "a", "type": "aws:iam/role:Role", "id": "labs", "pendingReplacement": True}
    after_it = {"urn": "b", "type": "t", "id": "1", "dependencies": ["a"]}
    before = state(op("a", type="aws:iam/role:Role"), resources=(old, after_it))
    assert states.ids_of_type(before, "aws:iam/role:Role") == set()
    after, _ = states.apply_steps(before, [step("a", "import", id="labs")])
    _, made, dependent = after["deployment"]["resources"]
    assert made == {**op("a", type="aws:iam/role:Role")["resource"], "id": "labs", "outputs": {}}
    assert dependent == after_it, "the engine takes a state only where what another needs comes before it"


@pytest.mark.parametrize("kind", ["creating", "updating", "deleting"])
def test_nothing_of_aws_is_looked_at_or_read_again_with_the_credentials_of_another(kind: str) -> None:
    """Another account has none of the resources: a refresh would remove them from the state."""

    class Refusing(AwsRecovery):
        def require_account(self, stack: str, state: Any) -> None:
            raise Failure(f"stack {stack}", "is in account 1", "log in")

    one = op("urn::a", kind)
    before = state(one, resources=(one["resource"],))
    engine = cast(Any, SimpleNamespace(environment=lambda name: ({}, None)))
    stack = Stack("prod", Paths.here(), engine, (Refusing(),))
    with pytest.raises(Failure, match="stack prod: is in account 1"):
        asyncio.run(_resolve(stack, before, UserDecisions(), datetime.now(UTC)))


def test_import_and_clear_of_the_same_resource_are_refused() -> None:
    todo = operations(state(op("urn::a")))
    for made, never_made in (({"a": "1"}, ["a"]), ({"urn::a": "1"}, ["a"]), ({"urn::a": "1", "a": "2"}, [])):
        with pytest.raises(InputError, match="a is given twice"):
            _require_pending(todo, UserDecisions((), made, never_made))
    _require_pending(todo, UserDecisions((), {"a": "1"}))


def test_what_was_changing_is_read_again_where_the_state_has_it() -> None:
    have = {"urn": "a", "type": "t", "id": "1"}
    before = state(op("a", "updating"), op("b", "reading"), resources=(have,))
    planned = [step("a", "refresh", "updating"), step("b", "clear", "reading")]
    after, again = states.apply_steps(before, planned)
    assert again == ["a"]
    assert after["deployment"] == {"resources": [PROVIDER, have]}


def test_what_was_put_there_and_never_read_is_still_to_do() -> None:
    after, _ = states.apply_steps(state(op("urn::a")), [step("urn::a", "import", id="vpc-1")])
    after["deployment"]["resources"][1]["custom"] = True
    (left,) = operations(after)
    assert (left.kind, left.name) == ("importing", "a")
    with pytest.raises(Failure, match="an interrupted run was creating a"):
        require_none(after, "prod")
    after["deployment"]["resources"][1]["outputs"] = {"arn": "x"}
    require_none(after, "prod")


def test_a_state_that_has_changed_makes_the_plan_void() -> None:
    plan = Plan("prod", "file://x", state=state(op("a")))
    states.require_planned(plan, state(op("a")))
    assert states.is_same_state(
        {"deployment": {"resources": [SECRET | {"plaintext": "1"}]}},
        {"deployment": {"resources": [SECRET | {"ciphertext": "x"}]}},
    )
    for other in (state(), state(op("a"), resources=({"urn": "a", "id": "1"},))):
        with pytest.raises(Failure, match="stack prod: its state has changed meanwhile"):
            states.require_planned(plan, other)


def test_secrets_are_read_and_never_shown() -> None:
    hidden = {**SECRET, "plaintext": json.dumps({"kubeconfig": "k", "more": {**SECRET, "plaintext": '"m"'}})}
    assert states.reveal_secrets([hidden, {"b": hidden}])[0] == {"kubeconfig": "k", "more": "m"}
    assert states.reveal_secrets({**SECRET, "ciphertext": "x"}) is None
    plan = Plan("prod", "file://x", state={"deployment": {"resources": [{"inputs": "hush"}]}})
    assert "hush" not in repr(plan) + json.dumps(plan.to_json())


def test_an_up_says_what_was_being_made_and_how_to_go_on() -> None:
    many = [op(f"urn:pulumi:prod::g::aws:ec2/vpc:Vpc::v{number}") for number in range(5)]
    assert [one.name for one in operations(state(*many))] == ["v0", "v1", "v2", "v3", "v4"]
    with pytest.raises(Failure) as caught:
        require_none(state(*many), "prod")
    shown = ", ".join(f"v{number} (aws:ec2/vpc:Vpc)" for number in range(3))
    assert str(caught.value) == (
        f"stack prod: an interrupted run was creating {shown} and 2 more, which may exist already; "
        "run 'gpuform recover prod' to look for it"
    )
    require_none(state(op("a", "updating"), op("b", "deleting")), "prod")


class Refreshing(PlayedEngine):
    """An engine with a refresh that removes resources not in ``there``."""

    def __init__(self, state: dict[str, Any], there: set[str]) -> None:
        super().__init__(state)
        self.backend = "file:///nowhere"
        self.there = there

    def deployment(self, env: Any, stack: str, show_secrets: bool = False) -> dict[str, Any]:
        return self.state

    def run_pulumi(self, env: Any, *words: str, stdin: str) -> str:
        self.state = json.loads(stdin)
        return ""

    def refresh(self, name: str, on_event: Any, targets: Any) -> None:
        have = self.state["deployment"]["resources"]
        have[:] = [one for one in have if one["urn"] not in targets or one["id"] in self.there]


def test_an_id_of_nothing_is_not_called_imported() -> None:
    """The refresh does not report it, and the next run would create the resource a second time."""
    before = state(op("urn::a"), op("urn::b"))
    steps = (step("urn::a", "import", id="vpc-1"), step("urn::b", "import", id="vpc-typo"))
    plan = Plan("prod", "file:///nowhere", steps=steps, state=before)
    message: list[str] = []
    one, both = (
        Stack("prod", Paths.here(), cast(Any, Refreshing(before, there)), RECOVERIES)
        for there in ({"vpc-1"}, {"vpc-1", "vpc-typo"})
    )
    with pytest.raises(Failure, match=r"stack prod: b \(t\) was not found by its id"):
        carry_out(one, plan, message.append)
    assert message == ["a (t): imported as vpc-1"]
    carry_out(both, plan, message.append)
    assert message[2:] == ["b (t): imported as vpc-typo"]
