"""A host's installed and held packages, queried with one command each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from testinfra.host import Host

from gpuform.hosts.checks.findings import expect


@dataclass(frozen=True)
class Packages:
    """Installed packages with their full version, and the names that are held."""

    installed: Mapping[str, str]
    held: frozenset[str]

    def matching(self, carriers: re.Pattern[str], names: re.Pattern[str]) -> frozenset[str]:
        """Installed packages matching ``names`` that have the upstream version of a carrier."""
        carried = [version for name, version in self.installed.items() if carriers.fullmatch(name)]
        versions = set(map(upstream_version, carried))
        return frozenset(
            name
            for name, version in self.installed.items()
            if names.fullmatch(name) and upstream_version(version) in versions
        )


def upstream_version(version: str) -> str:
    """A package's version without epoch and revision: ``1:580.95.05-1~deb12`` is ``580.95.05``."""
    return re.sub(r"[-~+].*$", "", version.partition(":")[2] or version)


def read_packages(host: Host) -> Packages:
    """Query dpkg, which works even if apt cannot read its sources, or rpm and dnf's versionlock."""
    if host.exists("dpkg-query"):
        form = r"${db:Status-Status} ${db:Status-Want} ${Package} ${Version}\n"
        lines = host.run("dpkg-query -W -f %s", form).stdout.splitlines()
        rows = [row for row in map(str.split, lines) if len(row) == 4 and row[0] == "installed"]
        return Packages(
            {row[2]: row[3] for row in rows}, frozenset(row[2] for row in rows if row[1] == "hold")
        )
    lines = host.run(r"rpm -qa --qf '%{NAME} %{VERSION}-%{RELEASE}\n'").stdout
    installed = dict(line.split() for line in lines.splitlines() if len(line.split()) == 2)
    return Packages(installed, _locked(host.run("dnf -q versionlock list").stdout, installed))


def expect_version(installed: Mapping[str, str], version: str, label: str, apply: str) -> None:
    """Expect installed packages, all of an upstream version; ``label`` names them in the finding."""
    expect(bool(installed), f"no package of the {label} is installed", f"run {apply}")
    wrong = {name: full for name, full in installed.items() if upstream_version(full) != version}
    others = [f"{name} {full}" for name, full in sorted(wrong.items())]
    expect(
        not others,
        f"{', '.join(others)} installed; {version} is pinned",
        f"run {apply} to bring it back, or pin the one that is installed",
    )


def _locked(text: str, installed: Mapping[str, str]) -> frozenset[str]:
    """dnf lists locks as ``name-epoch:version-release.*``."""
    names = (re.sub(r"-\d+:[^:]*$", "", line.strip()) for line in text.splitlines())
    return frozenset(name for name in names if name in installed)
