"""Who applies a stack's platform: neither twice, nor deleted because another run left it out."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.checkout.errors import InputError
from gpuform.stack import scope
from tests.build.environments import on

pytestmark = pytest.mark.unit

T4 = {"name": "t4", "machine": "g2.5xlarge"}
BOTH = ("nodes", "layouts")


def state(*components: str, only: tuple[str, ...] = ()) -> dict[str, Any]:
    stack: dict[str, Any] = {"type": "pulumi:pulumi:Stack", "outputs": {"only": list(only)} if only else {}}
    parts = [{"type": f"gpuform:platform:{name}"} for name in components]
    return {"deployment": {"resources": [stack, *parts]}}


WHOLE = state("Namespaces", "GpuOperator", "NodePools")


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, ()), ("nodes", ("nodes",)), ("layouts, nodes", BOTH), ("nodes,layouts", BOTH)],
)
def test_the_option_names_parts_in_any_order(text: str | None, found: tuple[str, ...]) -> None:
    assert scope.parse(text, on("existing", T4)) == found


@pytest.mark.parametrize("text", ["", "layouts", "nodes,operator", "all"])
def test_other_parts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="write --only nodes,layouts"):
        scope.parse(text, on("existing", T4))


def test_a_cluster_on_this_machine_has_no_controller() -> None:
    with pytest.raises(InputError, match="is on this machine"):
        scope.parse("nodes", on("embedded", T4))


@pytest.mark.parametrize(
    ("before", "only"),
    [
        (None, ()),
        ({}, BOTH),
        (WHOLE, ()),
        (state("NodePools"), BOTH),
        (state("NodePools", only=("nodes",)), BOTH),
        (state("NodePools", "MigLayouts", only=BOTH), BOTH),
    ],
)
def test_a_run_of_the_same_kind_goes_on(before: dict[str, Any] | None, only: tuple[str, ...]) -> None:
    scope.require_same("s", before, only)


@pytest.mark.parametrize(
    ("before", "only", "fact"),
    [
        (WHOLE, BOTH, "has applied the platform itself .2 parts."),
        (state("NodePools", only=BOTH), (), "others apply the platform of s"),
        (state("NodePools", "MigLayouts", only=BOTH), ("nodes",), "give --only nodes,layouts"),
    ],
)
def test_a_run_of_the_other_kind_is_refused(before: dict[str, Any], only: tuple[str, ...], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        scope.require_same("s", before, only)
