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
from infra.inventory import to_json
from tests.bed import Bed, stack

ROOT = Paths.here().root
OWN_CONFIG = ROOT / "ansible" / "ansible.cfg"
HOST_COUNTS = (2, 10)


@dataclass
class Settings:
    name: str
    config: str
    variables: dict[str, str] = field(default_factory=dict)


def list_settings() -> list[Settings]:
    stock = f"[defaults]\nroles_path = {ROOT / 'ansible' / 'roles'}\n"
    own_config = OWN_CONFIG.read_text().replace(
        "roles_path = roles", f"roles_path = {ROOT / 'ansible' / 'roles'}"
    )
    settings = [Settings("stock", stock), Settings("ours", own_config)]
    mitogen = find_spec("ansible_mitogen")
    if mitogen and mitogen.submodule_search_locations:
        plugins = Path(next(iter(mitogen.submodule_search_locations))) / "plugins" / "strategy"
        strategy = {"ANSIBLE_STRATEGY": "mitogen_linear", "ANSIBLE_STRATEGY_PLUGINS": str(plugins)}
        settings.append(Settings("mitogen", own_config, strategy))
    return settings


def run_playbook(bed: Bed, settings: Settings, playbook: str, *args: str) -> tuple[float, dict[str, int]]:
    """Run a playbook on all hosts of the bed; seconds, and how many tasks changed something on each host."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ansible.cfg").write_text(settings.config)
        (folder / "hosts.json").write_text(to_json(stack.listing(bed)))
        listing = folder / "hosts"
        listing.write_text(f"#!/bin/sh\ncat {folder}/hosts.json\n")
        listing.chmod(0o755)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
            **settings.variables,
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "facts"),
        }
        program = Path(sys.executable).with_name("ansible-playbook")
        command = [str(program), "-i", str(listing), str(ROOT / "ansible" / "playbooks" / playbook), *args]
        began = time.monotonic()
        result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
        seconds = time.monotonic() - began
    if result.returncode:
        output = f"{result.stdout[-4000:]}{result.stderr[-2000:]}"
        raise SystemExit(f"{settings.name}: {playbook} ended with {result.returncode}\n{output}")
    recap = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", result.stdout, re.MULTILINE)
    return seconds, {host: int(changed) for host, changed in recap}


def start_hosts(name: str, hosts: int) -> Bed:
    bed = Bed(f"bench-{os.getpid()}-{name}")
    bed.up(hosts, owner=os.getpid())
    bed.furnish_repository()
    return bed


def measure(hosts: int, settings: Settings) -> tuple[float, float]:
    """Seconds of the first and of the second run."""
    bed = start_hosts(settings.name, hosts)
    try:
        first, _ = run_playbook(bed, settings, "site.yml")
        second, changed = run_playbook(bed, settings, "site.yml")
    finally:
        bed.down()
    if any(changed.values()):
        raise SystemExit(f"{settings.name}: the second run changed something: {changed}")
    return first, second


def measure_added(hosts: int, settings: Settings) -> float:
    """Seconds to add one host to that many configured ones."""
    bed = start_hosts(f"add-{hosts}", hosts)
    try:
        run_playbook(bed, settings, "site.yml")
        new = bed.up(hosts + 1)[-1].name
        return run_playbook(bed, settings, "add-host.yml", "-e", f"host={new}")[0]
    finally:
        bed.down()


def main(sizes: Sequence[int]) -> None:
    try:
        bed = start_hosts("warm", 1)
    except Exception as error:
        raise SystemExit(f"no hosts here: {error}") from error
    try:
        run_playbook(bed, list_settings()[1], "site.yml")  # fills the mirror's cache
    finally:
        bed.down()
    print(
        f"{'hosts':>5} {'settings':>9} {'first s':>8} {'second s':>9} {'second/first':>13} {'stock/this':>22}"
    )
    for hosts in sizes:
        stock: tuple[float, float] | None = None
        for settings in list_settings():
            first, second = measure(hosts, settings)
            stock = stock or (first, second)
            gain = f"{stock[0] / first:.2f}x first, {stock[1] / second:.2f}x second"
            print(
                f"{hosts:5} {settings.name:>9} {first:8.1f} {second:9.1f} {second / first:12.2f}x {gain:>28}",
                flush=True,
            )
    added = {hosts: measure_added(hosts, list_settings()[1]) for hosts in HOST_COUNTS}
    few, many = (added[hosts] for hosts in HOST_COUNTS)
    print(
        f"one more host: {few:.1f} s at {HOST_COUNTS[0]}, {many:.1f} s at {HOST_COUNTS[1]}: {many / few:.2f}x"
    )


if __name__ == "__main__":
    main([int(arg) for arg in sys.argv[1:]] or [3, 10])
