"""Random changes of stack files end in InputError or in files; `python -m tests.mutations` runs more."""

from __future__ import annotations

import pytest

from tests.mutations.run import run
from tests.tiers import nightly_but


@pytest.mark.unit
@pytest.mark.parametrize("seed", nightly_but("1", {"1": 1, "2": 2}))
def test_a_few_mutations(seed: int) -> None:
    report = run(seed, 150)
    assert not report.wrong, report.text
    assert report.outcomes["rendered"] >= 5
    assert report.outcomes["refused"] >= 50


@pytest.mark.unit
@pytest.mark.nightly
def test_many_mutations() -> None:
    report = run(3, 20_000)
    assert not report.wrong, report.text
