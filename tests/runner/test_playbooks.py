"""The result of a run of the real ansible-playbook, host by host; it leaves no file and reveals no secret."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.hosts import Event
from gpuform.hosts.events import STOPPED
from tests.runner.conftest import Project, command, file
from tests.waiting import until

pytestmark = pytest.mark.tools

ONLY_TWO = "inventory_hostname == 'two'"


def test_each_host_has_its_own_result(project: Project) -> None:
    project.host("three", ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port=1)
    project.write(
        file("Write", "{{ playbook_dir }}/{{ inventory_hostname }}"),
        command("Break", "sh -c 'echo why >&2; exit 4'", when=ONLY_TWO),
        command("Go on", "true", changed_when=False),
    )
    outcome = project.run()
    assert not outcome.ok
    one, two, three = (outcome.hosts[name] for name in ("one", "two", "three"))
    assert one.to_json() == {"ok": True, "changed": 1, "failed": 0, "unreachable": False, "message": ""}
    assert (two.ok, two.changed, two.failed, two.task) == (False, 1, 1, "Break")
    assert two.message == "Break: non-zero return code; why"
    assert (three.ok, three.unreachable, three.changed) == (False, True, 0)
    assert three.message == "cannot be reached (Connection refused); check its address, port and power"
    assert outcome.failures == (f"host three: {three.message}", f"host two: {two.message}")


def test_all_done_is_ok_and_a_second_run_changes_nothing(project: Project) -> None:
    project.write(file("Write", "{{ playbook_dir }}/{{ inventory_hostname }}"))
    first, second = project.run(), project.run()
    assert first.ok
    assert second.ok
    assert [result.changed for result in first.hosts.values()] == [1, 1]
    assert [result.changed for result in second.hosts.values()] == [0, 0]


@pytest.mark.nightly
def test_a_check_says_what_would_change_and_changes_nothing(project: Project) -> None:
    project.write(file("Write", "{{ playbook_dir }}/{{ inventory_hostname }}"))
    outcome = project.run(check=True)
    assert outcome.ok
    assert outcome.hosts["one"].changes == ("Write",)
    assert "+made" in outcome.hosts["one"].diffs[0]
    assert not (project.folder / "ansible" / "playbooks" / "one").exists()


@pytest.mark.nightly
def test_a_failure_that_the_playbook_passes_over_or_mends_is_none(project: Project) -> None:
    project.write(
        command("Passed over", "false", ignore_errors=True),
        {
            "name": "Mended",
            "block": [command("Break", "false")],
            "rescue": [command("Mend", "true", changed_when=False)],
        },
    )
    outcome = project.run()
    assert outcome.ok, outcome.failures
    assert outcome.hosts["one"].failed == 0


@pytest.mark.nightly
@pytest.mark.parametrize("serial", [{"serial": 1}, {}], ids=["behind", "beside"])
def test_hosts_that_another_one_has_stopped_are_not_ok(project: Project, serial: dict[str, int]) -> None:
    failing = command("Break", "false", when="inventory_hostname == 'one'")
    project.write(failing, command("Later", "true"), any_errors_fatal=True, **serial)
    outcome = project.run()
    assert outcome.hosts["one"].message == "Break: non-zero return code"
    assert outcome.hosts["two"].to_json() == {
        "ok": False, "changed": 0, "failed": 0, "unreachable": False, "message": STOPPED,
    }  # fmt: skip


@pytest.mark.nightly
def test_a_host_that_no_later_play_is_about_is_done_when_all_of_another_play_fail(project: Project) -> None:
    """For example a CPU host when the driver fails on every GPU host: Ansible ends the run there."""
    project.groups = {"gpu": ["one"], "cpu": ["two"]}
    project.write(command("Prepare", "true"))
    playbook = project.folder / "ansible" / "playbooks" / "site.yml"
    task = command("Break", "false")
    last = {"name": "GPUs", "hosts": "gpu", "gather_facts": False, "tasks": [task]}
    playbook.write_text(playbook.read_text() + yaml.safe_dump([last]))
    outcome = project.run()
    assert outcome.hosts["one"].message == "Break: non-zero return code"
    assert outcome.hosts["two"].ok
    later = {"name": "Later", "hosts": "gpu:cpu", "gather_facts": False, "tasks": [command("Later", "true")]}
    playbook.write_text(playbook.read_text() + yaml.safe_dump([later]))
    assert project.run().hosts["two"].message == STOPPED


@pytest.mark.nightly
def test_each_item_that_failed_is_said(project: Project) -> None:
    project.write(command("Loop", "sh -c 'echo no {{ item }} >&2; exit {{ item }}'", loop=[0, 3, 4]))
    message = project.run().hosts["one"].message
    assert "no 3" in message
    assert "no 4" in message
    assert "no 0" not in message


@pytest.mark.nightly
def test_a_playbook_that_cannot_be_read_is_the_runs_failure(project: Project) -> None:
    project.write({"name": "Nothing of this name", "ansible.builtin.nothing": {}})
    outcome = project.run()
    assert not outcome.ok
    assert len(outcome.failures) == 1
    assert "ansible.builtin.nothing" in outcome.failures[0]
    assert not outcome.hosts["one"].ok


@pytest.mark.nightly
def test_a_limit_asks_for_those_hosts_only(project: Project) -> None:
    project.groups["pool_t4"] = ["two"]
    project.write(command("Write", "true"))
    assert list(project.run(limit=["one"]).hosts) == ["one"]
    assert list(project.run(limit=["pool_t4"]).hosts) == ["two"]
    assert list(project.run(limit=["one", "pool_t4"]).hosts) == ["one", "two"]
    with pytest.raises(
        InputError, match="limit: three is neither a host nor a group with hosts; the hosts are"
    ):
        project.run(limit=["three"])


@pytest.mark.nightly
def test_an_unknown_playbook_is_bad_input(project: Project) -> None:
    project.write(command("Write", "true"), name="other.yml")
    with pytest.raises(InputError, match=r"playbook: site\.yml is not in .*; the playbooks are: other\.yml"):
        project.run()


@pytest.mark.nightly
def test_a_fact_for_us_comes_with_the_result_and_no_other(project: Project) -> None:
    fact = {"gpuform_status": {"kernel": "6.1"}, "other": "x"}
    project.write({"name": "Tell", "ansible.builtin.set_fact": fact})
    assert project.run().hosts["one"].facts == {"kernel": "6.1"}


CANARY = "canary-4711-secret"
SCRIPT = """
import json, sys
from pathlib import Path
from gpuform.hosts import run
from gpuform.checkout.paths import Paths
folder = Path(sys.argv[1])
paths = Paths(root=folder, state=folder / "state", cache=folder / "cache")
tell = lambda event: print(event.kind, event.task, flush=True)
inventory = json.loads((folder / "inventory.json").read_text())
run("site.yml", inventory, ansible=folder / "ansible", paths=paths, on_event=tell)
"""


def contents(folder: Path) -> dict[str, bytes]:
    """Files below a folder in use: files that vanish meanwhile are left out."""
    result = {}
    for path, _ in below(folder):
        with contextlib.suppress(OSError):
            result[str(path)] = path.read_bytes()
    return result


def below(folder: Path) -> list[tuple[Path, int]]:
    result = []
    for parent, folders, files in os.walk(folder):  # os.walk tolerates folders that vanish
        for path in (Path(parent, name) for name in (*folders, *files)):
            with contextlib.suppress(OSError):
                result.append((path, path.lstat().st_mode))
    return result


def test_no_secret_is_in_an_event_a_result_or_an_artifact(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", CANARY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    project.host("one", mirror_password=CANARY, mirror_url=f"https://user:{CANARY}@mirror.example/x")
    project.write(
        file("Hidden", "{{ playbook_dir }}/hidden", "{{ mirror_password | default('none') }}", no_log=True),
        file("In a file", "{{ playbook_dir }}/shown", "{{ mirror_password | default('none') }}"),
        command(
            "Says it", "sh -c 'echo {{ mirror_password | default(1) }} {{ mirror_url | default(1) }}; false'"
        ),
    )
    seen: dict[str, bytes] = {}

    def look(event: Event) -> None:
        project.events.append(event)
        for folder in project.runs.iterdir():
            seen.update(contents(folder))

    outcome = project.run(check=True)
    assert CANARY not in str(outcome)
    assert CANARY not in str(project.events)
    outcome = project.run(on_event=look)
    assert outcome.hosts["one"].message == (
        "Says it: non-zero return code; (hidden) https://user:(hidden)@mirror.example/x"
    )
    assert CANARY not in str(project.events)
    holding = {name for name, content in seen.items() if CANARY.encode() in content}
    # While a copy task runs, Ansible keeps its content in a separate file that only its owner can read.
    lasting = {Path(name).name for name in holding if not Path(name).name.startswith(".")}
    assert lasting == {"hosts.json"}, "the inventory alone has it"
    assert any("/artifacts/" in name for name in seen)
    assert contents(project.runs) == {}


@pytest.mark.nightly
def test_what_is_hidden_by_no_log_is_not_in_the_message(project: Project) -> None:
    project.write(command("Says it", f"sh -c 'echo {CANARY}; false'", no_log=True))
    outcome = project.run()
    assert CANARY not in str(outcome)
    assert CANARY not in str(project.events)
    assert "check the host" in outcome.hosts["one"].message


def test_the_folder_is_the_users_alone(project: Project) -> None:
    modes: dict[str, int] = {}

    def look(event: Event) -> None:
        for path, mode in below(project.runs):
            modes[str(path.relative_to(project.runs))] = stat.S_IMODE(mode)
            modes["."] = stat.S_IMODE(project.runs.stat().st_mode)

    project.write(command("Write", "true"))
    project.run(on_event=look)
    assert modes["."] == 0o700
    assert {mode for name, mode in modes.items() if name.count("/") == 0} == {0o700}
    assert {mode for name, mode in modes.items() if name.endswith("hosts.json")} == {0o600}
    assert list(project.runs.iterdir()) == []


@pytest.mark.nightly
def test_an_error_of_the_caller_ends_the_run_and_leaves_nothing(project: Project) -> None:
    project.write(command("Wait", "sleep 4713"))

    def stop(event: Event) -> None:
        if event.kind == "started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project.run(on_event=stop)
    assert list(project.runs.iterdir()) == []
    assert running("4713") == []


@pytest.mark.nightly
def test_a_cancelled_run_says_so_and_leaves_nothing(project: Project) -> None:
    project.write(command("Wait", "sleep 4714"))
    outcome = project.run(cancelled=lambda: any(event.kind == "started" for event in project.events))
    assert (outcome.cancelled, outcome.ok) == (True, False)
    assert outcome.hosts["one"].message == "cancelled; run the same command again to continue"
    assert running("4714") == []
    assert list(project.runs.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_caller_leaves_no_process_and_no_file(project: Project, number: signal.Signals) -> None:
    seconds = str(4720 + number)
    project.write(command("Wait", f"sleep {seconds}"))
    (project.folder / "inventory.json").write_text(json.dumps(project.inventory))
    caller = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(project.folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert caller.stdout is not None
    while b"started" not in caller.stdout.readline():
        assert caller.poll() is None
    until(lambda: bool(running(seconds)))
    caller.send_signal(number)
    caller.wait(30)
    until(lambda: not running(seconds) and not list(project.runs.iterdir()))


def running(seconds: str) -> list[str]:
    result = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")[:2] if entry.name.isdigit() else []
        except OSError:
            continue
        if words == [b"sleep", seconds.encode()]:
            result.append(entry.name)
    return result
