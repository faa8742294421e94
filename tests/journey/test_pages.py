"""Executes the tutorials, each in a fresh clone: every command works, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import TUTORIALS, commands, not_shown
from tests.journey.conftest import cloned, close

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_works_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    checkout = cloned(tmp_path / "checkout")
    try:
        output = checkout.shell(*commands(page))
    finally:
        close(checkout)
    assert not_shown(page, output) == [], output
