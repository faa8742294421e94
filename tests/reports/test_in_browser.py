"""The pages in a real browser: narrow and wide, light and dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuform.reports.page import render_page, render_rehearsal
from tests.lab.rehearse.outcomes import outcome
from tests.reports.everything import facts
from tests.reports.test_contrast import colours

# It starts a process, so it is not a unit test; this marker runs where programs are available.
pytestmark = pytest.mark.cluster

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
    digits = colours(scheme)["bg"][1:]
    digits = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    background = f"rgb({', '.join(str(int(digits[at : at + 2], 16)) for at in (0, 2, 4))})"
    for (width, shade), most in zip(found[:4], WIDTHS * 2, strict=True):
        assert (width <= most, shade) == (True, background), found
    assert found[5][0] >= 900, "the measure sees what is too wide"
