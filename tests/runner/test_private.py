"""A run leaves no files and reveals no secret, however it ends."""

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

from gpuform.hosts import Event
from tests.runner.conftest import Project, command, file
from tests.waiting import until

pytestmark = pytest.mark.tools

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
