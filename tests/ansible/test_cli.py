"""``gpuform hosts`` on booted hosts, beside a cluster that some of them have joined."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from tests.ansible.conftest import BedFactory
from tests.bed import Bed
from tests.journey.conftest import Checkout
from tests.waiting import until

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
TASKS = [
    {"name": "Write", "ansible.builtin.copy": {"content": "done\n", "dest": "/srv/written", "mode": "0644"}},
    {"name": "Wait", "ansible.builtin.command": "sleep 4731", "when": "gpuform_environment == 'slow'"},
]


class LabCheckout(Checkout):
    """A checkout with the stack ``lab``, which declares the hosts of ``bed``."""

    bed: Bed

    def declare(self, **changes: Any) -> None:
        cluster = {
            "kind": "hosts",
            "private_key": str(self.bed.key),
            "known_hosts": str(self.bed.known_hosts),
        }
        hosts = [{"name": host.name, "address": host.address} for host in self.bed.hosts]
        taint = {"key": "example.com/dedicated", "value": "lab", "effect": "NoSchedule"}
        pool = {"name": "cpu", "hosts": hosts, "labels": {"team": "research"}, "taints": [taint]}
        cluster |= {key: value for key, value in changes.items() if key != "name"}
        environment = {"name": changes.get("name", "lab"), "cluster": cluster, "pools": [pool]}
        stack = {"config": {"gpuform:environment": environment}}
        (self.paths.root / "Pulumi.lab.yaml").write_text(yaml.safe_dump(stack))

    def hosts(self, *words: str, code: int = 0) -> str:
        return self.gpuform("hosts", *words, code=code).stdout

    def left(self) -> list[Path]:
        return list((self.paths.state / "hosts").iterdir())


@pytest.fixture(scope="module")
def booted(bed: BedFactory) -> Bed:
    return bed(2)


@pytest.fixture
def checkout(booted: Bed, tmp_path: Path) -> Iterator[LabCheckout]:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    (tmp_path / "toolchain").symlink_to(ROOT / "toolchain")
    (tmp_path / "infra" / "incluster").mkdir(parents=True)  # the mark of a checkout: its playbooks are used
    playbooks = tmp_path / "ansible" / "playbooks"
    playbooks.mkdir(parents=True)
    for file in ("ansible.cfg", "playbooks/status.yml"):
        (tmp_path / "ansible" / file).write_text((ROOT / "ansible" / file).read_text())
    play = [{"name": "Try", "hosts": "all", "gather_facts": False, "tasks": TASKS}]
    (playbooks / "site.yml").write_text(yaml.safe_dump(play, sort_keys=False))
    made = LabCheckout(Paths(root=tmp_path, state=tmp_path / ".gpuform", cache=Paths.here().cache))
    made.bed = booted
    made.declare()
    yield made
    for host in booted.hosts:
        host.run("rm -f /srv/written")


def test_apply_then_check_then_drift(checkout: LabCheckout) -> None:
    assert "gpu-1: would change: Write" in checkout.hosts("check", "lab", code=3)
    assert "  gpu-2: changed: Write" in checkout.hosts("apply", "lab", "--yes")
    checkout.hosts("check", "lab")
    checkout.bed.host("gpu-2").run("echo by hand > /srv/written")
    drift = json.loads(checkout.hosts("check", "lab", "--json", code=3))
    assert drift["changes"] == {"gpu-1": [], "gpu-2": ["Write"]}
    checkout.hosts("apply", "lab", "--yes", "--limit", "gpu-1")
    checkout.hosts("check", "lab", code=3)
    again = json.loads(checkout.hosts("apply", "lab", "--yes", "--json"))
    assert {name: result["changed"] for name, result in again["hosts"].items()} == {"gpu-1": 0, "gpu-2": 1}
    assert checkout.left() == []


def test_status_reads_the_hosts(checkout: LabCheckout) -> None:
    rows = json.loads(checkout.hosts("status", "lab", "--json"))["hosts"]
    assert [(row["host"], row["pool"], row["reached"]) for row in rows] == [
        ("gpu-1", "cpu", True),
        ("gpu-2", "cpu", True),
    ]
    assert rows[0]["system"].startswith("Debian 12")
    assert rows[0]["kernel"] == checkout.bed.host("gpu-1").out("uname -r")
    assert "Debian 12" in checkout.hosts("status", "lab", "--limit", "gpu-2")


@pytest.mark.cluster
def test_apply_puts_labels_and_taints_on_the_nodes_that_have_joined(
    checkout: LabCheckout, control_plane: Any
) -> None:
    checkout.declare(kubeconfig=str(control_plane.kubeconfig))
    assert "pool cpu: labels and taints on no node, because none has joined" in checkout.hosts(
        "apply", "lab", "--yes"
    )
    metadata = {"name": "gpu-1", "labels": {"kubernetes.io/hostname": "gpu-1"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(node))
    try:
        assert json.loads(checkout.hosts("apply", "lab", "--yes", "--json"))["nodes"] == {"cpu": ["gpu-1"]}
        found = json.loads(control_plane.kubectl("get", "node", "gpu-1", "-o", "json"))
        assert found["metadata"]["labels"]["gpuform.io/pool"] == "cpu"
        assert found["metadata"]["labels"]["team"] == "research"
        taint = {"key": "example.com/dedicated", "value": "lab", "effect": "NoSchedule"}
        assert taint in found["spec"]["taints"]
        rows = json.loads(checkout.hosts("status", "lab", "--json"))["hosts"]
        assert [row["node"] for row in rows] == ["not ready", "not joined"]
    finally:
        control_plane.kubectl("delete", "node", "gpu-1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_apply_leaves_nothing_and_goes_on(
    checkout: LabCheckout, number: signal.Signals
) -> None:
    checkout.declare(name="slow")
    run = checkout.begin("hosts", "apply", "lab", "--yes", stderr=subprocess.PIPE)
    try:

        def look() -> int:
            assert run.poll() is None
            return checkout.bed.host("gpu-1").run("pgrep -f '[s]leep 4731'", check=False).returncode

        until(look, (0).__eq__, 240)
        run.send_signal(number)
        _, said = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 130
    assert said.splitlines()[-1] == "interrupted; run the same command again to continue"
    assert checkout.left() == []
    for host in checkout.bed.hosts:
        host.run("pkill -f '[s]leep 4731'", check=False)
    checkout.declare()
    checkout.hosts("apply", "lab", "--yes")
