"""The bed itself: hosts are real machines to ssh and apt, and nothing of a bed outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ansible.conftest import BedFactory
from tests.bed import Bed, cgroups, network, sweep
from tests.bed.host import group, started
from tests.waiting import until

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two(bed: BedFactory):
    made = bed(2)
    yield made
    made.down()


def _links() -> str:
    return network.ip("-json", "link")


def _left(bed: Bed) -> dict[str, object]:
    return {
        "folder": bed.folder.exists(),
        "processes": sorted(cgroups.members(group(bed.folder))),
        "groups": [
            str(top) for top in cgroups.hierarchies() if (top / cgroups.ROOT / group(bed.folder)).exists()
        ],
        "bridge": network.alias(bed.folder) in _links(),
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if str(bed.folder) in line],
    }


NOTHING = {"folder": False, "processes": [], "groups": [], "bridge": False, "mounts": []}


def test_settings_of_a_host_are_its_own(two: Bed):
    before = Path("/proc/sys/vm/overcommit_memory").read_text()
    one, other = two.hosts
    one.run("sysctl -w vm.overcommit_memory=2")
    assert one.out("sysctl -n vm.overcommit_memory") == "2"
    assert other.out("sysctl -n vm.overcommit_memory") == before.strip()
    assert Path("/proc/sys/vm/overcommit_memory").read_text() == before


def test_a_host_reaches_nothing_but_its_bed(two: Bed):
    routes = json.loads(network.ip("-json", "-4", "route", "show", "default"))
    own = json.loads(network.ip("-json", "-4", "addr", "show", "dev", routes[0]["dev"])) if routes else []
    outside = own[0]["addr_info"][0]["local"] if own else "192.0.2.1"
    beyond = routes[0].get("gateway", outside) if routes else outside
    assert two.hosts[0].run(f"ping -c 1 -W 1 {beyond}", check=False).returncode != 0


_KILLED = """
import os, sys, time
from tests.bed import Bed
Bed(sys.argv[1]).up(1, owner=os.getpid())
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("its_server_too", [False, True])
def test_a_killed_run_is_cleaned_up_by_itself_or_by_the_next(bed: BedFactory, its_server_too: bool):
    """Its web server cleans up after a SIGKILL of the run; if it is killed too, the next run does."""
    name = f"killed-{os.getpid()}-{its_server_too}".lower()
    run = subprocess.Popen([sys.executable, "-c", _KILLED, name], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    made = Bed(name)
    if its_server_too:
        for pid in cgroups.members(f"{group(made.folder)}/web"):
            os.kill(pid, signal.SIGKILL)
    run.kill()
    run.wait()
    if its_server_too:
        assert made.hosts[0].running
        assert made.name in sweep()
    until(lambda: _left(made), NOTHING.__eq__, 0 if its_server_too else 40)


def test_a_reused_process_id_is_not_the_owner(bed: BedFactory):
    made = bed(1)
    made.folder.joinpath("bed.json").write_text(json.dumps({**made.record, "owner": [os.getpid(), 1]}))
    assert started(os.getpid()) != 1
    assert made.abandoned
    made.down()
