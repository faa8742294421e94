"""One host off, one with another host key: the run reports them, does the others, resumes after a repair."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.hosts import Event, Outcome, run
from tests.ansible.conftest import BedFactory
from tests.bed import Bed

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

CANARY = "canary-4710-secret"
CONFIG = Path(__file__).parents[2] / "ansible" / "ansible.cfg"
TASKS = [
    {
        "name": "Keep a secret",
        "ansible.builtin.copy": {"content": "{{ mirror_password }}", "dest": "/srv/kept", "mode": "0600"},
        "no_log": True,
    },
    {
        "name": "Fail with a secret",
        "ansible.builtin.command": "sh -c 'echo {{ mirror_password }} >&2; exit 1'",
        "no_log": True,
        "when": "breaks | default(false)",
    },
    {"name": "Write", "ansible.builtin.copy": {"content": "done\n", "dest": "/srv/written", "mode": "0644"}},
]
DONE = {"ok": True, "failed": 0, "unreachable": False, "message": ""}


@dataclass
class Setup:
    """Three hosts, a playbook, and a known_hosts file that a test may change."""

    bed: Bed
    folder: Path
    inventory: dict[str, Any]
    events: list[Event] = field(default_factory=list)

    @property
    def hostvars(self) -> dict[str, Any]:
        variables: dict[str, Any] = self.inventory["_meta"]["hostvars"]
        return variables

    @property
    def paths(self) -> Paths:
        return Paths(self.folder, self.folder / "state", self.folder / "cache")

    def run(self, **more: Any) -> Outcome:
        more = {"on_event": self.events.append, "ansible": self.folder / "ansible", **more}
        return run("site.yml", self.inventory, paths=self.paths, **more)

    def known(self, *hosts: str, keys_of: dict[str, str] | None = None) -> str:
        """Ssh options with a known_hosts of these hosts; ``keys_of`` gives one host the key of another."""
        lines = dict(
            (line.split(",")[0], line)
            for line in self.bed.known_hosts.read_text().splitlines()
            if line.strip()
        )
        known_hosts = []
        for name in hosts:
            key_host = (keys_of or {}).get(name, name)
            names, _, _ = lines[name].partition(" ")
            known_hosts.append(f"{names} {lines[key_host].partition(' ')[2]}")
        file = self.folder / "known_hosts"
        file.write_text("\n".join(known_hosts) + "\n")
        return f"-o UserKnownHostsFile={file} -o StrictHostKeyChecking=yes"

    def use(self, options: str) -> None:
        for variables in self.hostvars.values():
            variables["ansible_ssh_common_args"] = options


@pytest.fixture(scope="module")
def booted(bed: BedFactory) -> Bed:
    return bed(3)


@pytest.fixture
def site(booted: Bed, tmp_path: Path) -> Iterator[Setup]:
    playbooks = tmp_path / "ansible" / "playbooks"
    playbooks.mkdir(parents=True)
    (playbooks.parent / "ansible.cfg").write_text(CONFIG.read_text())
    play = [{"name": "Try", "hosts": "all", "gather_facts": True, "tasks": TASKS}]
    (playbooks / "site.yml").write_text(yaml.safe_dump(play, sort_keys=False))
    inventory = copy.deepcopy(booted.inventory())
    for variables in inventory["_meta"]["hostvars"].values():
        variables["mirror_password"] = CANARY
    yield Setup(booted, tmp_path, inventory)
    for host in booted.hosts:
        host.run("rm -f /srv/kept /srv/written")


def hosts_with_file(site: Setup) -> list[str]:
    return [
        host.name for host in site.bed.hosts if host.run("test -e /srv/written", check=False).returncode == 0
    ]


def test_a_host_that_is_off_and_one_with_another_key_are_named_and_the_third_is_done(site: Setup) -> None:
    site.use(site.known("gpu-1", "gpu-2", "gpu-3", keys_of={"gpu-3": "gpu-1"}))
    address = site.hostvars["gpu-2"]["ansible_host"]
    site.hostvars["gpu-2"]["ansible_host"] = address.rpartition(".")[0] + ".250"
    outcome = site.run()
    assert not outcome.ok
    assert outcome.hosts["gpu-1"].to_json() == {**DONE, "changed": 2}
    off, other = outcome.hosts["gpu-2"], outcome.hosts["gpu-3"]
    assert (off.ok, off.unreachable, other.ok, other.unreachable) == (False, True, False, True)
    assert off.message.startswith("cannot be reached (")
    assert other.message.startswith("wrong host key: it shows SHA256:"), other.message
    assert "correct known_hosts" in other.message
    assert [line.partition(":")[0] for line in outcome.failures] == ["host gpu-2", "host gpu-3"]
    assert hosts_with_file(site) == ["gpu-1"]
    site.hostvars["gpu-2"]["ansible_host"] = address
    site.use(site.known("gpu-1", "gpu-2", "gpu-3"))
    again = site.run()
    assert again.ok, again.failures
    assert [result.changed for result in again.hosts.values()] == [0, 2, 2]
    assert hosts_with_file(site) == ["gpu-1", "gpu-2", "gpu-3"]


def test_a_host_with_an_unknown_key_is_not_trusted(site: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Ansible's switch in the user's environment nor options missing from the caller change this."""
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    site.use(site.known("gpu-1", "gpu-3").replace("-o StrictHostKeyChecking=yes", ""))
    outcome = site.run()
    assert outcome.hosts["gpu-2"].message.startswith("unknown host key"), outcome.hosts["gpu-2"].message
    assert hosts_with_file(site) == ["gpu-1", "gpu-3"]
    assert "gpu-2" not in (site.folder / "known_hosts").read_text()


def test_the_secret_is_used_and_is_nowhere(site: Setup) -> None:
    site.hostvars["gpu-2"]["breaks"] = True
    tmp = Path("/tmp")
    before = {file: _age(file) for file in _files(tmp)}
    outcome = site.run()
    assert outcome.hosts["gpu-2"].message == (
        "Fail with a secret: failed; its output is hidden, since it may contain secrets: check the host"
    )
    assert site.bed.host("gpu-1").out("cat /srv/kept") == CANARY
    assert CANARY not in json.dumps([str(outcome), str(site.events)])
    here = [file for file in _files(tmp) if before.get(file) != _age(file)]
    places = [*here, *_files(site.folder), *_files(Path.home() / ".ansible")]
    assert [file for file in places if CANARY.encode() in _read(file)] == []
    for host in site.bed.hosts:
        found = host.run(
            f"grep -rl {CANARY} /tmp /var/log /var/tmp ~/.ansible; journalctl | grep {CANARY}", check=False
        )
        lines = [line for line in found.stdout.splitlines() if "grep" not in line]
        assert lines == [], host.name


def _files(folder: Path) -> list[Path]:
    found = []
    for file in folder.rglob("*"):
        try:
            if file.is_file() and not file.is_symlink() and file.stat().st_size < 1_000_000:
                found.append(file)
        except OSError:
            continue
    return found


def _age(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
