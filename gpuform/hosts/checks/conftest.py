"""Fixtures of the checks, and the output of their verdicts.

``verify`` runs pytest on them. Input, by environment: GPUFORM_HOSTS_INVENTORY (a file as
``ansible-inventory --list`` prints it), GPUFORM_HOSTS_BACKEND (ssh or kubectl, ssh if not set),
GPUFORM_HOSTS_LIMIT (names of hosts, comma separated), GPUFORM_HOSTS_STACK (for the commands in remedies).
Output: one line of JSON for each host and check, appended to the file that GPUFORM_HOSTS_RESULTS names:

    host      name of the host
    check     name of the check: the test's without ``test_``
    verdict   PASS, FAIL or SKIP
    fact      what the host answered (FAIL), why there was nothing to check (SKIP), empty (PASS)
    remedy    what repairs it (FAIL), else empty
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from gpuform.hosts.checks import connections
from gpuform.hosts.checks import expected as declared
from gpuform.hosts.checks import packages as package_manager
from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import CheckFailure, first_line

_OUT_OF_REACH = "the host cannot be asked"
_EXPECTED = pytest.StashKey[dict[str, Expected]]()


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(declared.INVENTORY)
    limit, stack = os.environ.get(declared.LIMIT, ""), os.environ.get(declared.STACK, "")
    config.stash[_EXPECTED] = declared.read_inventory(Path(path), limit, stack) if path else {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each check once per host of the inventory."""
    if "expected" not in metafunc.fixturenames:
        return
    hosts = list(metafunc.config.stash[_EXPECTED].values())
    metafunc.parametrize("expected", hosts, ids=[host.host for host in hosts], indirect=True, scope="session")


@pytest.fixture(scope="session")
def expected(request: pytest.FixtureRequest) -> Expected:
    expected_host: Expected = request.param
    return expected_host


@pytest.fixture(scope="session")
def sockets() -> Iterator[str]:
    """A private folder for the sockets of shared ssh connections; ssh refuses paths over 108 letters."""
    with tempfile.TemporaryDirectory(prefix="gpuform-") as folder:
        yield f"{folder}/%C"
        for socket in Path(folder).iterdir():  # else each connection stays for a minute
            subprocess.run(["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "_"], capture_output=True)


@pytest.fixture(scope="session")
def place(expected: Expected, sockets: str) -> connections.Connection:
    return connections.connect(expected, os.environ.get(declared.BACKEND, "ssh"), sockets)


@pytest.fixture
def machine(place: connections.Connection) -> Host:
    """The host itself; a pod sees neither its packages nor its services."""
    return _asked(place, place.machine, "seen on the host itself only, not from a pod")


@pytest.fixture
def driver(place: connections.Connection, expected: Expected) -> Host:
    """Where the driver is: the host, or its driver pod."""
    if not expected.gpu_count:
        pytest.skip("the host has no GPUs")
    return _asked(place, place.driver, f"no running pod of {connections.DRIVER[0]}")


@pytest.fixture
def toolkit(place: connections.Connection, expected: Expected) -> Host:
    """Where the container toolkit is: the host, or its toolkit pod."""
    if not expected.gpu_count:
        pytest.skip("the host has no GPUs")
    return _asked(place, place.toolkit, f"no running pod of {connections.TOOLKIT[0]}")


def _asked(place: connections.Connection, host: Host | None, otherwise: str) -> Host:
    if place.problem:
        pytest.skip(_OUT_OF_REACH)
    if host is None:
        pytest.skip(otherwise)
    return host


@pytest.fixture
def packages(machine: Host) -> package_manager.Packages:
    return package_manager.read_packages(machine)


@pytest.fixture
def node(expected: Expected) -> dict[str, Any]:
    if not expected.kubeconfig:
        pytest.skip("no cluster is declared that it could have joined (cluster.kubeconfig)")
    try:
        node = connections.node(expected.kubeconfig, expected.context, expected.host)
    except LookupError as error:
        raise CheckFailure(
            str(error), f"look at {expected.kubeconfig}: the cluster's API must answer"
        ) from None
    if node is None:
        pytest.skip("has not joined the cluster")
    return node


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write a check's verdict; report a failed one by its fact and remedy, without a traceback."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, CheckFailure):
        report.longrepr = str(error)
    callspec = getattr(item, "callspec", None)
    host = getattr(callspec, "params", {}).get("expected")
    path = os.environ.get(declared.RESULTS)
    if path and host and (report.when == "call" or (report.when == "setup" and not report.passed)):
        check = getattr(item, "originalname", item.name).removeprefix("test_")
        with Path(path).open("a") as results:
            results.write(json.dumps({"host": host.host, "check": check, **_verdict(report, error)}) + "\n")
    return report


def _verdict(report: pytest.TestReport, error: BaseException | None) -> dict[str, str]:
    if report.passed:
        return {"verdict": "PASS", "fact": "", "remedy": ""}
    if report.skipped:
        return {"verdict": "SKIP", "fact": str(getattr(error, "msg", error)), "remedy": ""}
    if isinstance(error, CheckFailure):
        return {"verdict": "FAIL", "fact": error.fact, "remedy": error.remedy}
    fact = f"the check itself failed: {type(error).__name__}: {first_line(str(error))}"
    return {
        "verdict": "FAIL",
        "fact": fact,
        "remedy": "look whether the host still answers, and run it again",
    }
