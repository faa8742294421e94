"""The pages in a real browser: narrow and wide, light and dark, without any request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.reports import rehearsal_page
from gpuform.reports.page import page
from tests.lab.rehearse.outcomes import outcome
from tests.reports import browser
from tests.reports.browser import Browser
from tests.reports.everything import facts
from tests.reports.test_contrast import colours

# It starts a process, so it is not a unit test; this marker runs where programs are available.
pytestmark = pytest.mark.cluster

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = browser.found()
    if program is None:
        pytest.skip("no chromium on PATH: `apt-get install chromium` where it can be had")
    with browser.started(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


def written(folder: Path, text: str) -> Path:
    file = folder / "page.html"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["report", "rehearsal"])
def test_a_page_fits_and_is_silent(
    chromium: Browser, tmp_path: Path, which: str, width: int, scheme: str
) -> None:
    text = page(facts()) if which == "report" else rehearsal_page.page(outcome(nodes=3))
    seen = chromium.look(written(tmp_path, text), width, scheme)
    assert seen.width <= width
    assert seen.troubles == []
    assert seen.requests == []
    assert rgb(seen.background) == hexadecimal(colours(scheme)["bg"])


def test_the_measure_sees_what_it_is_for(chromium: Browser, tmp_path: Path) -> None:
    bad = (
        '<!doctype html><body style="background:#010203"><div style="width:900px">x</div>'
        '<img src="http://127.0.0.1:1/x.png"><script>console.log("said"); nothing()</script>'
    )
    seen = chromium.look(written(tmp_path, bad), 400, "light")
    assert seen.width >= 900
    assert seen.requests == ["http://127.0.0.1:1/x.png"]
    said = " ".join(seen.troubles)
    assert "said" in said
    assert "ReferenceError" in said
    assert rgb(seen.background) == (1, 2, 3)


def rgb(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(","))


def hexadecimal(colour: str) -> tuple[int, ...]:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    return tuple(int(digits[index : index + 2], 16) for index in (0, 2, 4))
