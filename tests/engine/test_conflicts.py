"""Fields of the stack's objects that other managers have set are taken back, and nothing else is forced."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpuform.engine import EngineFailure, Message, Result, Step
from gpuform.engine.result import conflicts, retry_with_force

pytestmark = pytest.mark.unit

WEB = "urn:pulumi:s::gpuform::kubernetes:apps/v1:Deployment::web"
NEW = "urn:pulumi:s::gpuform::kubernetes:v1:Namespace::new"
TEXT = (
    'the Kubernetes API server reported that "n/web": Server-Side Apply field conflict detected. See x\n'
    'The resource managed by field manager "pulumi-1" had an apply conflict: Apply failed with {}'
)
ONE = TEXT.format(
    '1 conflict: conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas'
)
TWO = TEXT.format('2 conflicts: conflicts with "kubectl-edit" using v1:\n- .data.a\n- .data.b')
OTHER = "the image cannot be pulled"


def failed(*errors: tuple[str, str, str]) -> EngineFailure:
    """A run in which steps failed: operation, URN and message of each."""
    steps = tuple(Step(op, urn, "failed") for op, urn, _ in errors)
    messages = tuple(Message("error", text, urn) for _, urn, text in errors)
    result = Result("up", "s", {"same": 1, "update": 1}, 1.0, steps, messages)
    return EngineFailure(result, "failed", "see the log")


def run_of(*outcomes: EngineFailure | Result) -> tuple[list[Sequence[str]], list[str], Result]:
    forced: list[Sequence[str]] = []
    said: list[str] = []
    left = list(outcomes)

    def run(urns: Sequence[str]) -> Result:
        forced.append(urns)
        outcome = left.pop(0)
        if isinstance(outcome, EngineFailure):
            raise outcome
        return outcome

    return forced, said, retry_with_force(run, said.append)


DONE = Result("up", "s", {"same": 3}, 1.0)
TAKEN = Result("up", "s", {"same": 2, "update": 1}, 1.0)


def test_a_conflict_is_forced_for_its_object_alone_and_the_update_repeated() -> None:
    forced, said, result = run_of(failed(("update", WEB, ONE)), TAKEN, DONE)
    assert forced == [(), [WEB], ()]
    assert said == ["Deployment web: takes back .spec.replicas from kubectl"]
    assert result.changes == {"same": 1, "update": 2}


def test_every_field_and_manager_is_named() -> None:
    assert conflicts(failed(("update", WEB, TWO)).result) == {
        WEB: "Deployment web: takes back .data.a, .data.b from kubectl-edit"
    }


@pytest.mark.parametrize(
    "outcomes",
    [
        [failed(("update", WEB, OTHER))],
        [failed(("create", NEW, ONE))],  # an object of others: nothing of theirs is overwritten
        [failed(("update", WEB, ONE)), TAKEN, failed(("update", WEB, ONE))],  # another manager sets it again
        [failed(("update", WEB, ONE)), failed(("update", WEB, OTHER))],
    ],
)
def test_every_other_failure_ends_the_run(outcomes: list[EngineFailure | Result]) -> None:
    with pytest.raises(EngineFailure):
        run_of(*outcomes)
