"""A tool from a package: with controlled stand-ins for apt and dpkg, and once with Debian's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toolchain import debian
from lab.toolchain.catalogue import CATALOGUE, Package, Tool
from lab.toolchain.found import fits
from lab.toolchain.progress import Lines

pytestmark = pytest.mark.tools
# Logs each call; the verb in APT_FAILS fails with apt's message on its second line.
APT_GET = """#!/bin/sh
for word in "$@"; do case $word in download|update) verb=$word;; esac; done
echo "$verb in $PWD" >> "$APT_NOTES"
[ "$APT_FAILS" = "$verb" ] && { echo Reading...; echo "E: Failed to fetch it" >&2; exit 100; }
[ "$verb" = update ] && touch "$APT_NOTES.updated"
[ "$verb" = download ] && echo packed > "tiny_1.2.3-4_all.deb"
exit 0
"""
APT_CACHE = """#!/bin/sh
candidate=${APT_CANDIDATE:-1.2.3+ds-4}
[ -n "$APT_OLD_LISTS" ] && [ ! -e "$APT_NOTES.updated" ] && candidate='(none)'
printf 'tiny:\\n  Installed: (none)\\n  Candidate: %s\\n  Version table:\\n' "$candidate"
"""
DPKG_DEB = """#!/bin/sh
mkdir -p "$3/usr/bin"
for name in tiny other; do
  printf '#!/bin/sh\\necho %s, version %s+ds\\n' $name "${DPKG_SAYS:-1.2.3}" > "$3/usr/bin/$name"
  chmod +x "$3/usr/bin/$name"
done
"""


@pytest.fixture
def apt(
    fake_go, executable: Callable[[str, str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The stand-ins, first on PATH; returns the file with the calls of apt-get."""
    for name, text in (("apt-get", APT_GET), ("apt-cache", APT_CACHE), ("dpkg-deb", DPKG_DEB)):
        folder = executable("apt", name, text).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("APT_NOTES", str(tmp_path / "calls"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path / "calls"


def packed(tool: Tool) -> Tool:
    return replace(tool, debian=Package(name="tiny", member=f"usr/bin/{tool.name}"))


def verbs(calls: Path) -> list[str]:
    return [line.split()[0] for line in calls.read_text().splitlines()] if calls.exists() else []


def test_two_tools_of_one_package_are_fetched_once_and_nothing_is_built(fake_go, apt: Path) -> None:
    tools = [packed(fake_go.tool(name)) for name in ("tiny", "other")]
    toolchain = fake_go.toolchain(*tools)
    lines: list[str] = []
    toolchain.ensure("tiny", "other", progress=lines.append)
    found = toolchain.locate("tiny")
    assert (found.source, found.version) == ("package", "1.2.3")
    assert found.path == fake_go.tools / "tiny-1.2.3-package" / "tiny"
    assert (verbs(apt), fake_go.builds()) == (["download"], [])
    assert lines == [
        f"{name} 1.2.3: from the package tiny, unpacked but not installed" for name in ("tiny", "other")
    ]
    assert fake_go.published() == ["other-1.2.3-package", "tiny-1.2.3-package"]
    assert str(fake_go.tools) in apt.read_text()  # apt writes to this folder, and it is removed

    fake_go.toolchain(*tools).ensure("tiny", progress=lines.append)
    assert len(lines) == 2


def test_the_newest_in_the_cache_that_lies_in_the_range(fake_go, apt: Path) -> None:
    tool = replace(packed(fake_go.tool()), accepts=("1.2.0", "1.11.0"))
    for version in ("1.2.9", "1.10.0", "1.11.0", "1.10.1-rc.1"):
        (fake_go.tools / f"tiny-{version}-package").mkdir(parents=True)
        (fake_go.tools / f"tiny-{version}-package" / "tiny").touch()
    (fake_go.tools / "tiny-1.10.9-package").mkdir()  # the binary was removed
    assert fake_go.toolchain(tool).locate("tiny").version == "1.10.0"


def test_the_lists_are_renewed_where_they_do_not_know_it(
    fake_go, apt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APT_OLD_LISTS", "1")
    assert fake_go.toolchain(packed(fake_go.tool())).locate("tiny").path is None
    fake_go.toolchain(packed(fake_go.tool())).ensure("tiny", progress=lambda _: None)
    assert verbs(apt) == ["update", "download"]


# Environment variables, calls of apt-get, and why the module is built.
REFUSED = [
    ({"APT_CANDIDATE": "2.0.0-1"}, [], "the package tiny is 2.0.0-1, not from 1.2.3 up to 1.2.4"),
    ({"APT_CANDIDATE": "1:1.2.2+ds-1"}, [], "the package tiny is 1:1.2.2+ds-1, not from 1.2.3 up to 1.2.4"),
    ({"APT_CANDIDATE": "(none)"}, ["update"], "apt knows no package tiny"),
    (
        {"APT_CANDIDATE": "(none)", "APT_FAILS": "update"},
        ["update"],
        "apt-get --quiet update: E: Failed to fetch it",
    ),
    (
        {"APT_FAILS": "download"},
        ["download"],
        "apt-get --quiet download tiny: E: Failed to fetch it",
    ),
    ({"DPKG_SAYS": "1.2.4"}, ["download"], "usr/bin/tiny of the package tiny reports version 1.2.4 here"),
]


@pytest.mark.parametrize(("settings", "called", "reason"), REFUSED)
def test_what_cannot_be_had_is_said_once_and_built(
    settings: dict[str, str],
    called: list[str],
    reason: str,
    fake_go,
    apt: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    toolchain = fake_go.toolchain(*(packed(fake_go.tool(name)) for name in ("tiny", "other")))
    lines: list[str] = []
    toolchain.ensure("tiny", "other", progress=lines.append)
    assert [toolchain.locate(name).source for name in ("tiny", "other")] == ["built", "built"]
    assert lines[0] == f"tiny: {reason}; building from the Go module"
    assert lines[1].startswith("tiny 1.2.3: building tiny, other")
    assert verbs(apt) == called


def test_who_is_not_root_leaves_the_lists(fake_go, apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APT_CANDIDATE", "(none)")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    fake_go.toolchain(packed(fake_go.tool())).ensure("tiny", progress=lambda _: None)
    assert (verbs(apt), len(fake_go.builds())) == ([], 1)


def test_an_apt_that_does_not_end_is_given_up(
    fake_go, apt: Path, executable: Callable[[str, str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable("apt", "apt-get", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(debian, "_FETCH_S", 0.3)
    lines: list[str] = []
    fake_go.toolchain(packed(fake_go.tool())).ensure("tiny", progress=lines.append)
    assert "timed out after 0.3 seconds; building from the Go module" in lines[0]


def test_a_machine_without_apt_builds(fake_go, monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(
        debian.shutil, "which", lambda name, **more: None if name == "apt-cache" else which(name, **more)
    )
    lines: list[str] = []
    fake_go.toolchain(packed(fake_go.tool())).ensure("tiny", progress=lines.append)
    assert lines[0].startswith("tiny 1.2.3: building tiny")


def test_debians_own_prometheus(tmp_path: Path) -> None:
    """With the real apt, if this machine's can provide it."""
    tool = CATALOGUE["prometheus"]
    assert tool.debian
    if not all(map(shutil.which, debian._PROGRAMS)):
        pytest.skip("no apt on this machine")
    lines: list[str] = []
    got = debian.Packages().fetch(tool, tmp_path, Lines(lines.append))
    if got is None:
        pytest.skip(lines[0])
    assert got.binary.is_relative_to(tmp_path)
    assert fits(got.version, tool.accepts)
    assert lines == [f"prometheus {got.version}: from the package prometheus, unpacked but not installed"]
