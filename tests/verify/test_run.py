"""A complete run of the checks against this machine, with GPU tools played by a few scripts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.hosts.verify import Report, verify
from gpuform.reports import hosts as tables

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
UUID = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
PROGRAMS = {
    "nvidia-smi": f'case "$*" in -L) echo "GPU 0: Tesla T4 (UUID: {UUID})";; '
    f'*) echo "0, {UUID}, Tesla T4, 580.95.05, Enabled, [N/A]";; esac',
    "lsmod": r'printf "Module Size Used by\nnvidia_uvm 1 0\nnvidia 1 1 nvidia_uvm\n"',
    "modinfo": 'echo "Dual MIT/GPL"',
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body in PROGRAMS.items():
        write(folder / name, body)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def write(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run(*hosts: str, limit: tuple[str, ...] = (), **variables: Any) -> Report:
    own = {
        "ansible_connection": "local",
        "gpuform_pool": "t4",
        "nvidia_driver_version": "580.95.05",
        "nvidia_driver_modules": "open",
        "nvidia_driver_product": "Tesla T4",
        "nvidia_driver_count": 1,
        **variables,
    }
    return verify({"_meta": {"hostvars": dict.fromkeys(hosts, own)}}, ROOT, stack="lab", limit=limit)


def found(report: Report, host: str) -> dict[str, str]:
    return {one.check: one.fact or one.verdict for one in report.verdicts if one.host == host}


def test_every_check_of_every_host_has_a_verdict(programs: Path) -> None:
    report = run("one", "two", "three", "four", "five")  # two processes
    assert report.hosts == ("five", "four", "one", "three", "two")
    for host in report.hosts:
        verdicts = found(report, host)
        assert list(verdicts) == list(report.checks)
        for check in ("reachable", "gpus", "driver_version", "modules", "nouveau", "persistence", "mig"):
            assert verdicts[check] == "PASS", check
    assert report.checks[0] == "reachable"


def test_what_is_wrong_is_said_with_its_remedy(programs: Path) -> None:
    write(
        programs / "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    )
    write(programs / "lsmod", r'printf "Module Size Used by\nnouveau 1 0\n"')
    report = run("one")
    assert not report.ok
    one = report.to_json()["hosts"]["one"]
    assert not one["ok"]
    assert one["checks"]["driver_version"] == {
        "verdict": "FAIL",
        "fact": "nvidia-smi ends with 18: Failed to initialize NVML: Driver/library version mismatch",
        "remedy": "reboot the host: the kernel still runs the driver before the upgrade, "
        "or run `gpuform hosts apply lab`",
    }
    assert one["checks"]["modules"]["fact"] == "not loaded: nvidia, nvidia_uvm"
    assert one["checks"]["nouveau"]["fact"] == "nouveau is loaded"
    lines = list(tables.failure_lines(report))
    assert (
        "one: nouveau: nouveau is loaded; "
        "run `gpuform hosts apply lab`, which blacklists it, and reboot the host" in lines
    )


def test_gpus_that_are_missing_or_others_are_counted(programs: Path) -> None:
    facts = found(run("one", nvidia_driver_count=2, nvidia_driver_product="NVIDIA L4"), "one")
    assert facts["gpus"] == "nvidia-smi lists 1x Tesla T4; 2x NVIDIA L4 is declared"


def test_a_host_without_gpus_is_asked_for_none(programs: Path) -> None:
    facts = found(run("one", nvidia_driver_count=0), "one")
    assert facts["reachable"] == "PASS"
    assert {facts[check] for check in ("gpus", "modules", "runtime", "mig")} == {"the host has no GPUs"}


def test_a_host_out_of_reach_fails_once(tmp_path: Path) -> None:
    ssh = {
        "ansible_connection": "ssh",
        "ansible_host": "127.0.0.1",
        "ansible_port": 1,
        "ansible_user": "root",
    }
    report = run("one", **ssh)
    assert not report.ok
    failed = [(one.check, one.fact, one.remedy) for one in report.verdicts if one.verdict == "FAIL"]
    assert failed == [
        (
            "reachable",
            "ssh: connect to host 127.0.0.1 port 1: Connection refused",
            "check that 127.0.0.1 is up and that ssh takes its key and yours: `ssh -p 1 root@127.0.0.1 true`",
        )
    ]


def test_only_the_hosts_asked_for(programs: Path) -> None:
    assert run("one", "two", limit=("two",)).hosts == ("two",)
    with pytest.raises(InputError, match="--limit: no host or group 'three'; known: one, two"):
        run("one", "two", limit=("three",))


def test_no_host_is_a_failure() -> None:
    with pytest.raises(Failure, match="has no hosts"):
        run()


def test_an_installation_without_the_checks_says_so(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"tests/hosts: the checks are missing; run it in a checkout"):
        verify({"_meta": {"hostvars": {"one": {}}}}, tmp_path)


def test_the_table_has_a_line_per_check_and_a_column_per_host(programs: Path) -> None:
    shown = list(tables.check_tables(run(*(f"h{number}" for number in range(8)))))
    assert [len(table.columns) for table in shown] == [7, 3]
    assert str(next(iter(shown[0].columns[0].cells))) == "reachable"
