"""site.yml on 3 and 10 booted hosts: our settings beside a stock ansible.cfg, run twice; then one more host.

    python -m bench.ansible [HOSTS ...]

Every line has new bare Debian hosts over real ssh; their packages come from a local repository and a mirror
behind a warm cache, so the network is not measured. The peer is the same ansible-core on the same playbook
with a configuration that sets only the path of the roles; if mitogen can be imported, its strategy with our
settings is a third line. A second run must change nothing, or the figures are void. Needs root and Debian's
tools, as the tests on hosts do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from gpuform.checkout.paths import Paths
from infra.inventory import text
from tests.bed import Bed, stack

ROOT = Paths.here().root
OURS = ROOT / "ansible" / "ansible.cfg"
ADDED_AT = (2, 10)


@dataclass
class Settings:
    name: str
    config: str
    variables: dict[str, str] = field(default_factory=dict)


def ways() -> list[Settings]:
    stock = f"[defaults]\nroles_path = {ROOT / 'ansible' / 'roles'}\n"
    ours = OURS.read_text().replace("roles_path = roles", f"roles_path = {ROOT / 'ansible' / 'roles'}")
    found = [Settings("stock", stock), Settings("ours", ours)]
    mitogen = find_spec("ansible_mitogen")
    if mitogen and mitogen.submodule_search_locations:
        plugins = Path(next(iter(mitogen.submodule_search_locations))) / "plugins" / "strategy"
        strategy = {"ANSIBLE_STRATEGY": "mitogen_linear", "ANSIBLE_STRATEGY_PLUGINS": str(plugins)}
        found.append(Settings("mitogen", ours, strategy))
    return found


def play(bed: Bed, way: Settings, playbook: str, *args: str) -> tuple[float, dict[str, int]]:
    """Run a playbook on all hosts of the bed; seconds, and how many tasks changed something on each host."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ansible.cfg").write_text(way.config)
        (folder / "hosts.json").write_text(text(stack.listing(bed)))
        listing = folder / "hosts"
        listing.write_text(f"#!/bin/sh\ncat {folder}/hosts.json\n")
        listing.chmod(0o755)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
            **way.variables,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "facts"),
        }
        program = Path(sys.executable).with_name("ansible-playbook")
        command = [str(program), "-i", str(listing), str(ROOT / "ansible" / "playbooks" / playbook), *args]
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
        seconds = time.monotonic() - began
    if done.returncode:
        raise SystemExit(
            f"{way.name}: {playbook} ended with {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )
    recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", done.stdout, re.MULTILINE)
    return seconds, {host: int(changed) for host, changed in recap}


def bare(name: str, hosts: int) -> Bed:
    bed = Bed(f"bench-{os.getpid()}-{name}")
    bed.up(hosts, owner=os.getpid())
    bed.furnish_repository()
    return bed


def measure(hosts: int, way: Settings) -> tuple[float, float]:
    """Seconds of the first and of the second run."""
    bed = bare(way.name, hosts)
    try:
        first, _ = play(bed, way, "site.yml")
        second, changed = play(bed, way, "site.yml")
    finally:
        bed.down()
    if any(changed.values()):
        raise SystemExit(f"{way.name}: the second run changed something: {changed}")
    return first, second


def measure_added(hosts: int, way: Settings) -> float:
    """Seconds to add one host to that many configured ones."""
    bed = bare(f"add-{hosts}", hosts)
    try:
        play(bed, way, "site.yml")
        new = bed.up(hosts + 1)[-1].name
        return play(bed, way, "add-host.yml", "-e", f"host={new}")[0]
    finally:
        bed.down()


def main(sizes: Sequence[int]) -> None:
    try:
        bed = bare("warm", 1)
    except Exception as error:
        raise SystemExit(f"no hosts here: {error}") from error
    try:
        play(bed, ways()[1], "site.yml")  # fills the mirror's cache
    finally:
        bed.down()
    print(
        f"{'hosts':>5} {'settings':>9} {'first s':>8} {'second s':>9} {'second/first':>13} {'stock/this':>22}"
    )
    for hosts in sizes:
        stock: tuple[float, float] | None = None
        for way in ways():
            first, second = measure(hosts, way)
            stock = stock or (first, second)
            gain = f"{stock[0] / first:.2f}x first, {stock[1] / second:.2f}x second"
            print(
                f"{hosts:5} {way.name:>9} {first:8.1f} {second:9.1f} {second / first:12.2f}x {gain:>28}",
                flush=True,
            )
    added = {hosts: measure_added(hosts, ways()[1]) for hosts in ADDED_AT}
    few, many = (added[hosts] for hosts in ADDED_AT)
    print(f"one more host: {few:.1f} s at {ADDED_AT[0]}, {many:.1f} s at {ADDED_AT[1]}: {many / few:.2f}x")


if __name__ == "__main__":
    main([int(arg) for arg in sys.argv[1:]] or [3, 10])
