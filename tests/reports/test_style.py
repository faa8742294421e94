"""Readability of the pages, light and dark: contrast, computed from the style itself, and a real browser.

WCAG 2.1: text needs 4.5 to 1 (1.4.3, level AA), bars and lines 3 to 1 against their background (1.4.11).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuform.reports.page import COLOURS, TEMPLATES, render_page, render_rehearsal
from tests.lab.rehearse.outcomes import outcome
from tests.reports.everything import facts

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


def rgb(colour: str) -> list[int]:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    return [int(digits[at : at + 2], 16) for at in (0, 2, 4)]


def luminance(colour: str) -> float:
    parts = (part / 255 for part in rgb(colour))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.unit
def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.unit
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


WIDTHS = (1280, 400)
WIDE = '<!doctype html><body style="background:#010203"><div style="width:900px">x</div>'
# Each page in a frame of each width; a page written into a frame can be measured from outside.
MEASURE = """<!doctype html><body><pre id="found"></pre><script>
const found = [];
for (const text of PAGES) for (const width of WIDTHS) {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.style = `border: 0; height: 900px; width: ${width}px`;
  frame.contentDocument.write(text);
  frame.contentDocument.close();
  const root = frame.contentDocument;
  const background = frame.contentWindow.getComputedStyle(root.body).backgroundColor;
  found.push([root.documentElement.scrollWidth, background]);
}
document.getElementById("found").textContent = JSON.stringify(found);
</script>"""


@pytest.mark.cluster  # it starts a process; this marker runs where programs are available
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_have_the_scheme_s_background(scheme: str, tmp_path: Path) -> None:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no chromium on PATH: `apt-get install chromium` where it can be had")
    pages = json.dumps([render_page(facts()), render_rehearsal(outcome(nodes=3)), WIDE]).replace("</", "<\\/")
    file = tmp_path / "measure.html"
    file.write_text(MEASURE.replace("PAGES", pages, 1).replace("WIDTHS", str(list(WIDTHS)), 1))
    settings = f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}"
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += [settings, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    shown = re.search(r'<pre id="found">(.*?)</pre>', done.stdout)
    assert shown, done.stderr
    found: list[tuple[int, str]] = json.loads(shown[1])
    background = f"rgb({', '.join(map(str, rgb(colours(scheme)['bg'])))})"
    for (width, shade), most in zip(found[:4], WIDTHS * 2, strict=True):
        assert (width <= most, shade) == (True, background), found
    assert found[5][0] >= 900, "the measure sees what is too wide"
