"""The Debian mirror of this machine's own apt configuration; the tests do not name one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.bed.refusal import Refused

SUITE = "bookworm"  # Debian 12


@dataclass(frozen=True)
class Source:
    url: str
    suites: tuple[str, ...]


def sources(etc: Path = Path("/etc/apt")) -> list[Source]:
    """The machine's own archives of Debian 12, or the one in $GPUFORM_DEBIAN_MIRROR."""
    given = os.environ.get("GPUFORM_DEBIAN_MIRROR")
    if given:
        return [Source(given.rstrip("/"), (SUITE,))]
    found = [*_deb822(etc), *_lines(etc)]
    ours = [source for source in found if any(suite.split("-")[0] == SUITE for suite in source.suites)]
    if not any(SUITE in source.suites for source in ours):
        raise Refused(f"apt here has no mirror of Debian {SUITE}; set GPUFORM_DEBIAN_MIRROR to one")
    return ours


def _deb822(etc: Path) -> list[Source]:
    found = []
    for file in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(
                re.findall(r"^(Types|URIs|Suites|Components|Enabled):\s*(.+)$", stanza, re.MULTILINE)
            )
            usable = "main" in fields.get("Components", "").split() and fields.get("Enabled") != "no"
            if "deb" in fields.get("Types", "").split() and usable:
                url = fields["URIs"].split()[0].rstrip("/")
                found.append(Source(url, tuple(fields["Suites"].split())))
    return found


def _lines(etc: Path) -> list[Source]:
    found = []
    for file in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]:
        for line in file.read_text().splitlines() if file.is_file() else []:
            match = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
            if match and "main" in match[3].split():
                found.append(Source(match[1].rstrip("/"), (match[2],)))
    return found
