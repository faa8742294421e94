"""Whether hosts match their declaration: runs ``checks`` over ssh or in operator pods.

The checks get an inventory and nothing else of this program. They change nothing on a host.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpuform import INSTALLATION
from gpuform.checkout.errors import Failure, InputError

Backend = Literal["ssh", "kubectl"]
CHECKS = Path(__file__).with_name("checks")
HOSTS_PER_PROCESS = 4
"""The checks of one host take about 2 s over ssh, most of it waiting; a process takes 1 s to start."""
MOST_PROCESSES = 8


@dataclass(frozen=True)
class Verdict:
    """One check of one host; ``verdict`` is PASS, FAIL or SKIP, ``fact`` is the reason if not PASS."""

    host: str
    check: str
    verdict: str
    fact: str
    remedy: str


@dataclass(frozen=True)
class Report:
    """Every check of every host, sorted by host, then in the order in which the checks ran."""

    stack: str
    backend: str
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """No check failed, and at least one passed."""
        outcomes = {verdict.verdict for verdict in self.verdicts}
        return "FAIL" not in outcomes and "PASS" in outcomes

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verdict.host for verdict in self.verdicts))

    @property
    def checks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verdict.check for verdict in self.verdicts))

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform hosts verify --json``.

        ``{"stack", "backend", "ok", "hosts": {NAME: {"ok", "checks": {CHECK: {"verdict", "fact",
        "remedy"}}}}}``. No key is ever removed; checks may be added.
        """
        hosts = {}
        for host in self.hosts:
            of_host = [one for one in self.verdicts if one.host == host]
            checks = {
                one.check: {"verdict": one.verdict, "fact": one.fact, "remedy": one.remedy} for one in of_host
            }
            hosts[host] = {"ok": all(verdict.verdict != "FAIL" for verdict in of_host), "checks": checks}
        return {"stack": self.stack, "backend": self.backend, "ok": self.ok, "hosts": hosts}


def verify(
    inventory: Mapping[str, Any],
    *,
    stack: str = "",
    backend: Backend = "ssh",
    limit: Sequence[str] = (),
    kubectl: Path | None = None,
) -> Report:
    """Run every check on every host of an inventory, or on those of ``limit``.

    ``kubectl`` is put on the PATH of the checks. Raises InputError for a host or group that is not in the
    inventory, and Failure if the checks themselves cannot run.
    """
    if importlib.util.find_spec("testinfra") is None:
        raise InputError("testinfra", "is not installed", "pip install 'gpuform[hosts]'")
    hosts = _select_hosts(inventory, limit)
    groups = [hosts[start :: _process_count(len(hosts))] for start in range(_process_count(len(hosts)))]
    with tempfile.TemporaryDirectory(prefix="gpuform-verify-") as folder:
        file = Path(folder, "inventory.json")
        file.touch(mode=0o600)
        file.write_text(json.dumps(inventory))
        environment = {
            **os.environ,
            "GPUFORM_HOSTS_INVENTORY": str(file),
            "GPUFORM_HOSTS_BACKEND": backend,
            "GPUFORM_HOSTS_STACK": stack,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the checks use none, and some take a second to load
        }
        if kubectl:
            environment["PATH"] = f"{kubectl.parent}{os.pathsep}{environment.get('PATH', '')}"
        with ThreadPoolExecutor(len(groups)) as pool:
            results = pool.map(lambda group: _run_checks(Path(folder), group, environment), groups)
            verdicts = [verdict for group in results for verdict in group]
    return Report(stack, backend, tuple(sorted(verdicts, key=lambda verdict: verdict.host)))


def _process_count(hosts: int) -> int:
    return min(MOST_PROCESSES, -(-hosts // HOSTS_PER_PROCESS))


def _select_hosts(inventory: Mapping[str, Any], limit: Sequence[str]) -> Sequence[str]:
    all_hosts = sorted(inventory["_meta"]["hostvars"])
    if not all_hosts:
        raise Failure("the inventory", "has no hosts", "declare them in the environment's pools")
    selected: set[str] = set()
    for name in limit:
        group = all_hosts if name == "all" else inventory.get(name, {}).get("hosts", [])
        if name not in all_hosts and not group:
            raise InputError("--limit", f"no host or group {name!r}", f"known: {', '.join(all_hosts)}")
        selected |= {name} if name in all_hosts else set(group)
    return [name for name in all_hosts if name in selected] if limit else all_hosts


def _run_checks(folder: Path, hosts: Sequence[str], environment: Mapping[str, str]) -> Iterable[Verdict]:
    results = folder / f"{hosts[0]}.results"
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--import-mode=importlib"]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            f"--rootdir={CHECKS}",
            f"--confcutdir={CHECKS}",
            str(CHECKS),
        ],
        cwd=INSTALLATION,
        env={**environment, "GPUFORM_HOSTS_LIMIT": ",".join(hosts), "GPUFORM_HOSTS_RESULTS": str(results)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if result.returncode not in (0, 1) or not results.exists():
        output = f"{result.stdout}{result.stderr}".strip().splitlines()[-15:]
        raise Failure(
            "the checks", f"could not run (pytest exited with {result.returncode})", "\n".join(output)
        )
    return [Verdict(**json.loads(line)) for line in results.read_text().splitlines()]
