"""The bed itself: hosts are real machines to ssh and apt, and nothing of a bed outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ansible.conftest import Beds
from tests.bed import Bed, cgroups, network, places, sweep
from tests.bed.host import group, started
from tests.waiting import until

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two(bed: Beds):
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


def test_hosts_boot_systemd_with_everything_started(two: Bed):
    for host in two.hosts:
        assert (
            host.out("systemctl is-system-running; cat /proc/1/comm; hostname")
            == f"running\nsystemd\n{host.name}"
        )
        assert host.out("systemctl --failed --no-legend --plain") == ""
    one, other = two.hosts
    assert one.out("cat /etc/machine-id") != other.out("cat /etc/machine-id")
    assert one.out(f"ping -c 1 -W 2 {other.address} >/dev/null && echo reached") == "reached"


def test_a_host_key_is_checked(two: Bed):
    one, other = two.hosts
    command = one.ssh("-o", f"HostName={other.address}", "-o", f"HostKeyAlias={one.address}", "-v")
    done = subprocess.run([*command, "--", "true"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_a_reboot_is_one(two: Bed):
    host = two.hosts[0]
    before = host.out("cat /proc/sys/kernel/random/boot_id; touch /run/gone /var/stays")
    host.reboot()
    assert host.out("cat /proc/sys/kernel/random/boot_id") != before
    assert host.out("ls -d /run/gone /var/stays 2>/dev/null || true") == "/var/stays"


def test_its_settings_are_its_own(two: Bed):
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


def test_packages_of_the_distribution(two: Bed):
    host = two.hosts[0]
    host.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends jq")
    assert host.out("echo '{\"a\": 1}' | jq .a") == "1"
    assert "Hit:1" in host.out("apt-get update")  # printed for an unchanged archive


def _trust(bed: Bed, key: str) -> None:
    repository = bed.repository_named("trial")
    host = bed.hosts[0]
    host.write("/etc/apt/keyrings/trial.asc", key)
    source = f"deb [signed-by=/etc/apt/keyrings/trial.asc] {repository.url} {repository.suite}\n"
    host.write("/etc/apt/sources.list.d/trial.list", source)


def test_a_repository_is_believed_by_its_key_alone(two: Bed):
    repository, host = two.repository_named("trial"), two.hosts[0]
    repository.add("trial", "1.0", {"/usr/bin/trial": "#!/bin/sh\necho one\n"})
    repository.publish()
    _trust(two, two.repository_named("stranger").key.read_text())
    refused = host.run("apt-get update", check=False)
    assert refused.returncode != 0
    assert f"NO_PUBKEY {repository.fingerprint[-16:]}" in refused.stdout + refused.stderr
    _trust(two, repository.key.read_text())
    host.run("apt-get update -qq && apt-get install -y -qq trial")
    assert host.out("trial") == "one"


def test_a_newer_package_is_an_upgrade(two: Bed):
    repository, host = two.repository_named("trial"), two.hosts[0]
    repository.add("trial", "1.0", {"/usr/bin/trial": "#!/bin/sh\necho one\n"})
    repository.add("trial", "2.0", {"/usr/bin/trial": "#!/bin/sh\necho two\n"}, depends=("bash",))
    repository.publish()
    _trust(two, repository.key.read_text())
    host.run("apt-get update -qq && apt-get install -y -qq --allow-downgrades trial=1.0")
    assert host.out("trial") == "one"
    host.run("apt-get upgrade -y -qq trial")
    assert host.out("trial") == "two"


def test_one_more_host_joins_a_bed_that_runs(bed: Beds):
    small = bed(1)
    try:
        first = small.hosts[0].out("cat /proc/sys/kernel/random/boot_id")
        assert [host.name for host in small.up(2)] == ["gpu-1", "gpu-2"]
        assert small.hosts[0].out("cat /proc/sys/kernel/random/boot_id") == first
        assert set(json.loads((small.folder / "inventory.json").read_text())["gpu"]["hosts"]) == {
            "gpu-1",
            "gpu-2",
        }
    finally:
        small.down()
    assert _left(small) == NOTHING


def test_a_host_without_power_keeps_its_disk(bed: Beds):
    small = bed(1)
    host = small.hosts[0]
    host.run("echo kept > /var/kept && sync")
    host.power_off()
    assert not host.running
    small.up(1)
    assert host.out("cat /var/kept") == "kept"
    small.down()
    assert _left(small) == NOTHING


_KILLED = """
import os, sys, time
from tests.bed import Bed
Bed(sys.argv[1]).up(1, owner=os.getpid())
print("up", flush=True)
time.sleep(600)
"""


def _kill_a_run(name: str, *, its_server_too: bool) -> Bed:
    """Kill a test run with a bed by SIGKILL, with or without its web server, which would clean up."""
    run = subprocess.Popen([sys.executable, "-c", _KILLED, name], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    made = Bed(name)
    if its_server_too:
        for pid in cgroups.members(f"{group(made.folder)}/web"):
            os.kill(pid, signal.SIGKILL)
    run.kill()
    run.wait()
    return made


def test_a_killed_run_is_cleaned_up_by_itself(bed: Beds):
    made = _kill_a_run(f"killed-{os.getpid()}-a", its_server_too=False)
    until(lambda: _left(made), NOTHING.__eq__)


def test_a_killed_run_is_cleaned_up_by_the_next(bed: Beds):
    made = _kill_a_run(f"killed-{os.getpid()}-b", its_server_too=True)
    assert made.hosts[0].running
    assert made.name in sweep()
    assert _left(made) == NOTHING


def test_an_interrupted_beginning_is_in_nobodys_way(bed: Beds):
    made = Bed(f"half-{os.getpid()}")
    made.folder.mkdir(parents=True)
    network.claim(made.folder)
    assert made.abandoned
    made.up(1, owner=os.getpid())
    assert made.hosts[0].out("hostname") == "gpu-1"
    made.down()
    assert _left(made) == NOTHING


def test_a_reused_process_id_is_not_the_owner(bed: Beds):
    made = bed(1)
    made.folder.joinpath("bed.json").write_text(json.dumps({**made.record, "owner": [os.getpid(), 1]}))
    assert started(os.getpid()) != 1
    assert made.abandoned
    made.down()


def test_two_beds_at_once_do_not_meet(bed: Beds, two: Bed):
    other = bed(1)
    try:
        assert other.gateway != two.gateway
        assert other.hosts[0].run(f"ping -c 1 -W 1 {two.hosts[0].address}", check=False).returncode != 0
    finally:
        other.down()
    assert two.hosts[0].out("echo still") == "still"


def test_the_command_line(bed: Beds):
    name = f"by-hand-{os.getpid()}"

    def run(*args: str) -> str:
        command = [sys.executable, "-m", "tests.bed", *args]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    try:
        assert "gpu-1" in run("up", name, "--hosts", "1")
        assert f"{name}: {places.bed(name)}" in run("status")
    finally:
        run("down", name)
    assert _left(Bed(name)) == NOTHING


def test_a_library_of_nvml_answers_through_the_machines_own_nvidia_smi(
    bed: Beds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    library, program = tmp_path / "libnvidia-ml.so", tmp_path / "nvidia-smi"
    library.write_text("the library\n")
    program.write_text('#!/bin/sh\necho "$1 from $LD_LIBRARY_PATH"\ncat $LD_LIBRARY_PATH/libnvidia-ml.so.1\n')
    monkeypatch.setenv("GPUFORM_NVML_LIBRARY", str(library))
    made = bed(1)
    try:
        said = made.hosts[0].out("/usr/local/lib/fake-gpu/smi.py -L")
    finally:
        made.down()
    assert said == "-L from /usr/local/lib/fake-gpu/real\nthe library"
