"""Readability of the pages, light and dark: WCAG 2.1's contrast, computed from the style itself.

Text needs 4.5 to 1 (1.4.3, level AA), bars and lines 3 to 1 against their background (1.4.11).
"""

from __future__ import annotations

import re

import pytest

from gpuform.reports.page import COLOURS, TEMPLATES

pytestmark = pytest.mark.unit

DARK = "@media (prefers-color-scheme: dark)"
CELLS = [f"w{index}" for index in range(COLOURS)]
TEXT = {
    "fg": ["bg", "box", "free", "badbg", "warnbg", *CELLS],
    "dim": ["bg", "box", "free", "badbg", *CELLS],
    "bad": ["bg", "box", "badbg"],
    "link": ["bg", "badbg", "warnbg"],
}
DRAWN = {"bar": ["bg", "box", "line"], "mem": ["box", "line"], "fixed": ["bg"], "dim": ["box", *CELLS]}


def colours(scheme: str) -> dict[str, str]:
    light, _, rest = (TEMPLATES / "page.css").read_text().partition(DARK)
    found = dict(re.findall(r"--(\w+): (#[0-9a-f]+);", light))
    if scheme == "dark":
        dark = dict(re.findall(r"--(\w+): (#[0-9a-f]+);", rest.partition("\n}\n")[0]))
        assert dark.keys() == found.keys()
        return dark
    return found


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = (int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_itself() -> None:
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("least", "table"), [(4.5, TEXT), (3.0, DRAWN)], ids=["text", "drawn"])
def test_contrast(scheme: str, least: float, table: dict[str, list[str]]) -> None:
    known = colours(scheme)
    weak = {
        f"{front} on {back}": round(found, 2)
        for front, backs in table.items()
        for back in backs
        if (found := contrast(known[front], known[back])) < least
    }
    assert not weak
