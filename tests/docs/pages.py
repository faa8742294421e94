"""The Markdown pages, their links and their fenced commands."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TUTORIALS = sorted((ROOT / "docs/tutorial").glob("*.md"))
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def files() -> list[str]:
    """Paths of the files in the checkout that git does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if (ROOT / path).exists()]


def pages() -> list[Path]:
    return [ROOT / path for path in files() if path.endswith(".md") and not path.startswith("tests/")]


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Each relative link: the file that it names, and the anchor in it or an empty string."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    words = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", word).strip().replace(" ", "-") for word in words}


def commands(page: Path) -> list[str]:
    """The executed commands: the lines with ``$`` in the blocks of ``console``."""
    return [line[2:] for line in _lines(page, "console") if line.startswith("$ ")]


def shown(page: Path) -> list[str]:
    """The output that the blocks of ``console`` show, without ``...``."""
    found = [line for line in _lines(page, "console") if not line.startswith("$ ")]
    return [line for line in found if line.strip(" .")]


def not_shown(page: Path, output: str) -> list[str]:
    """The lines of output that the page shows, and that ``output`` lacks."""
    output = _steady(output)
    return [line for line in shown(page) if _steady(line).strip() not in output]


def scripts(page: Path) -> list[str]:
    """Every command of the page: those of ``console``, and the lines of ``sh``, which need an account."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(_lines(page, "sh")))
    return [*commands(page), *(line for line in joined.splitlines() if line and not line.startswith("#"))]


def _lines(page: Path, language: str) -> Iterator[str]:
    for kind, text in _FENCE.findall(page.read_text(encoding="utf-8")):
        if kind == language:
            yield from textwrap.dedent(text).splitlines()


def _steady(text: str) -> str:
    """``text`` without what differs between runs: widths, durations, ports, the zones of bought nodes."""
    text = re.sub(r"\d+(\.\d+)? s\b", "N s", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:N", text)
    text = re.sub(r"\b(us-east-1)[ab]\b", r"\1", text)
    return re.sub(r"[ \t]+", " ", text)
