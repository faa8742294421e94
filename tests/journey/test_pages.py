"""Executes README and the tutorials in one clone, in the order of docs/index.md and in reverse.

Every command works; in the order of the index it prints what its page shows. No page leaves anything behind
that changes what another one does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import README, ROOT, commands, links, not_shown
from tests.journey.conftest import cloned, close

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

INDEX = ROOT / "docs/index.md"
TUTORIALS = [page for page, _ in links(INDEX) if page.parent.name == "tutorial" and page.suffix == ".md"]
PAGES = list(dict.fromkeys([README, *TUTORIALS]))


def test_the_index_lists_every_tutorial() -> None:
    assert set(PAGES) == {README, *(ROOT / "docs/tutorial").glob("*.md")}


@pytest.mark.parametrize("order", ["as listed", "reversed"])
def test_the_pages_work_one_after_the_other(tmp_path: Path, order: str) -> None:
    checkout = cloned(tmp_path / "checkout")
    try:
        for page in PAGES if order == "as listed" else PAGES[::-1]:
            output = checkout.shell(*commands(page))
            missing = not_shown(page, output) if order == "as listed" else []
            assert missing == [], f"{page}: {output}"
            checkout.shell("git diff --exit-code")
    finally:
        close(checkout)
