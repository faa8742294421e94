"""The comment on a pull request: the verdict first, short at any size, reproducible, without values."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gpuform.engine import Violation
from gpuform.engine.events import Change, Step
from gpuform.reports.pull_request import LIMIT, marker, render_comment
from gpuform.reports.stack import preview_parts
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.outcome import Outcome
from gpuform.stack.preview.snapshot import PodRef
from infra.config import parse
from infra.model.base.prices import PriceList
from infra.plan.cost import bill
from tests.build.aws_stacks import stack

pytestmark = pytest.mark.unit

PLAIN = Outcome("prod", offline=True, live=True, changes={"same": 40})
POD = PodRef("science", "Deployment/web", "web-1", "t4", "t4-0", gpu=True, budget="keep")
PODS = (POD, replace(POD, name="web-2"))
EVICTION = Effect(Weight.EVICTION, "pool t4", "nodes are replaced", ("t4-0",), PODS)
RESTART = Effect(Weight.RESTART, "Deployment a/b", "is rolled out again", evicts=(replace(POD, name="b"),))
LOSS = Effect(Weight.LOSS, "cluster prod", "is replaced (name), with everything in it", evicts=(POD,))
FAILURE = Effect(Weight.FAILURE, "driver upgrade", "fails on the nodes of these pods", ("t4-0",))
BROKEN = Violation("gpuform/encrypted", True, "Volumes are encrypted.\nvolume a is not", "urn:x::y::z::class")
LATER = Violation("gpuform/iam-scoped", False, "string value at .policy can't be known during preview", "u")


def test_warnings_of_the_stack_file_are_in_the_comment_and_in_the_json() -> None:
    warned = replace(PLAIN, warnings=("pools[0].elastic.max.cpu: 1 node has 4 <a>",))
    assert "**Warnings**\n\n- pools[0].elastic.max.cpu: 1 node has 4 &lt;a>\n" in render_comment(warned)
    assert "Warnings" not in render_comment(PLAIN)
    assert warned.to_json()["warnings"] == ["pools[0].elastic.max.cpu: 1 node has 4 <a>"]


def step(number: int, op: str = "update") -> Step:
    change = Change({"password": "canary"}, {"password": "canary2"}, (f"spec.path[{number}].password",))
    urn = f"urn:pulumi:s::gpuform::kubernetes:core/v1:ConfigMap::map-{number:05}"
    return Step(op, urn, "planned", change)


def priced(**cost: Any) -> Outcome:
    env = parse({**stack("aws-dev"), "cost": cost} if cost else stack("aws-dev"))
    return replace(PLAIN, after=bill(env, PriceList()))


def test_a_loss_comes_with_the_option_that_accepts_it() -> None:
    *_, last = preview_parts(replace(PLAIN, effects=(LOSS, replace(LOSS, what="namespace web"))))
    assert last == "undo the change, or accept what is lost: --acknowledge prod --acknowledge web"


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (PLAIN, "no change"),
        (replace(PLAIN, changes={"same": 1, "update": 2}), "evicts no pods; 2 to update"),
        (replace(PLAIN, changes={"update": 2}, effects=(EVICTION,)), "evicts 2 pods; 2 to update"),
        (replace(PLAIN, changes={"update": 2}, effects=(EVICTION, replace(RESTART, evicts=PODS))),
         "evicts 2 pods; 2 to update"),
        (replace(PLAIN, changes={"update": 2}, effects=(RESTART,)), "evicts no other pods; 2 to update"),
        (replace(PLAIN, changes={"update": 2}, effects=(EVICTION, RESTART)),
         "evicts 2 other pods; 2 to update"),
        (replace(PLAIN, changes={"update": 2}, effects=(FAILURE,)),
         "driver upgrade fails; evicts no pods; 2 to update"),
        (replace(PLAIN, effects=(LOSS,)),
         "cluster prod is replaced (name), with everything in it: not acknowledged"),
        (replace(PLAIN, effects=(LOSS,), changes={"replace": 1}, acknowledged=("prod",)),
         "evicts 1 pod; 1 to replace"),
        (replace(PLAIN, violations=(BROKEN, LATER)), "1 policy is broken"),
        (replace(PLAIN, violations=(BROKEN,), effects=(LOSS,)), None),
        (replace(PLAIN, error="pools[0].machine: unknown"), "cannot be previewed: pools[0].machine: unknown"),
        (priced(budget_usd_per_month=100.0), "may cost 2,188 USD a month, the budget is 100"),
        (priced(budget_usd_per_month=3000.0), "no change"),
    ],
)  # fmt: skip
def test_the_verdict_is_what_must_be_known_first(outcome: Outcome, verdict: str | None) -> None:
    if verdict is None:
        assert outcome.verdict.endswith("not acknowledged (and 1 more)")
    else:
        assert outcome.verdict == verdict
    first, second = render_comment(outcome).splitlines()[:2]
    assert first == marker("prod")
    sign = "🔴" if outcome.reasons else "🟡" if outcome.evicted or outcome.failures else "🟢"
    assert second == f"### {sign} `prod`: {outcome.verdict}"
    assert ("**Fails unless something is done first**" in render_comment(outcome)) == bool(outcome.failures)


def test_pods_are_said_by_their_owner_with_the_budget_that_protects_them() -> None:
    alone = replace(POD, owner="", name="alone", budget="")
    shown = render_comment(replace(PLAIN, effects=(replace(EVICTION, evicts=(*EVICTION.evicts, alone)),)))
    assert "| science/Deployment/web (2, PDB keep), science/Pod/alone (not recreated) |" in shown


def test_what_cannot_be_judged_yet_is_counted_and_not_called_broken() -> None:
    shown = render_comment(replace(PLAIN, violations=(LATER, LATER)))
    assert "**Policies**: all hold; 2 more can be checked only by `up`" in shown
    broken = render_comment(replace(PLAIN, violations=(BROKEN,)))
    assert "| broken | encrypted | class | volume a is not |" in broken


def test_cost_says_before_and_after_and_the_source_of_prices() -> None:
    outcome = priced()
    more = parse({**stack("aws-dev"), "cost": {"prices": {"g4dn.xlarge": 2.0}}})
    shown = render_comment(replace(outcome, before=outcome.after, after=bill(more, PriceList())))
    assert "| pool g4dn-shared | 0 to 1,728 | 0 to 6,032 |  |" in shown
    assert "| **all** | 461 to 2,188 | 461 to 6,493 | +4,305 |" in shown
    assert "list prices of us-east-1, 2026-07-20" in shown
    assert "pool system" not in shown.split("<details>")[0]  # unchanged pools are not shown


def test_a_base_that_was_not_played_is_said() -> None:
    message = "the base could not be simulated, so every resource shows as new"
    assert message in render_comment(replace(PLAIN, base_is_unknown=True))
    assert message not in render_comment(PLAIN)


def test_another_region_is_said() -> None:
    outcome = replace(PLAIN, after=bill(parse(stack("aws-prod")), PriceList()))
    assert "those of us-west-2 differ" in render_comment(outcome)


def test_no_size_is_too_large() -> None:
    steps = tuple(step(number) for number in range(20_000))
    effects = tuple(replace(EVICTION, what=f"pool p{number}" * 20) for number in range(2_000))
    violations = tuple(replace(BROKEN, urn=f"u::{number}", text="x" * 5_000) for number in range(2_000))
    middle = replace(PLAIN, changes={"update": 20_000}, steps=steps)
    large = replace(middle, effects=effects, violations=violations, error="e" * 100_000)
    shown = render_comment(large)
    assert len(shown) <= LIMIT
    assert shown.rstrip().endswith("</details>")
    middling = render_comment(middle)
    assert LIMIT - 500 < len(middling) <= LIMIT
    assert "... and " in middling


def test_the_same_outcome_gives_the_same_bytes_whatever_the_order_of_steps() -> None:
    steps = [step(number, op) for number, op in enumerate(["update", "create", "delete", "replace"] * 20)]
    once = render_comment(replace(PLAIN, changes={"update": 1}, steps=tuple(steps)))
    random.Random(1).shuffle(steps)
    assert render_comment(replace(PLAIN, changes={"update": 1}, steps=tuple(steps))) == once


def test_no_value_is_shown() -> None:
    outcome = replace(PLAIN, changes={"update": 1}, steps=(step(1), step(2, "replace"), step(3, "create")))
    assert "spec.path[1].password" in render_comment(outcome)
    assert "canary" not in render_comment(outcome)
    assert "canary" not in str(outcome.to_json())


def test_foreign_text_has_no_markup_and_no_mentions() -> None:
    hostile = "| a <script> @everyone\n# title ```"
    shown = render_comment(replace(PLAIN, error=hostile, violations=(replace(BROKEN, text=hostile),)))
    assert [text for text in ("<script>", "@everyone", "\n# title") if text in shown] == []


def test_what_is_lost_is_acknowledged_by_its_name_whatever_it_is() -> None:
    """The name of its kind may have two words."""
    for what in ("cluster prod", "encryption key prod", "volume claim prod"):
        lost = replace(PLAIN, effects=(replace(LOSS, what=what),))
        assert lost.losses
        assert not replace(lost, acknowledged=("prod",)).losses
        assert replace(lost, acknowledged=("key prod",)).losses
