"""The keeper itself: a missing part of one program does not stop the other, and errors are logged once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from lab.plane.ports import is_free
from lab.sidecars.monitoring.cluster import APP, Cluster, MonitoringObjects
from lab.sidecars.monitoring.keeper import PROMETHEUS, PROMTOOL, MonitoringKeeper, Settings
from lab.sidecars.monitoring.targets import Ports
from lab.sidecars.shared.child import MESSAGES_FILE
from lab.sidecars.shared.server import NotFound
from tests.lab.sidecars.monitoring.site import prometheus, rules, state_metrics
from tests.waiting import until

pytestmark = pytest.mark.cluster

DEPLOYMENT = next(item for item in state_metrics() if item["kind"] == "Deployment")
RULE = {"record": "a", "expr": "1"}


class FakeCluster:
    """A cluster in which one account may be missing."""

    def __init__(self) -> None:
        self.world: MonitoringObjects | None = None
        self.absent = ""

    def read(self) -> MonitoringObjects | None:
        return self.world

    def kubeconfig(self, namespace: str, account: str) -> str:
        if account == self.absent:
            raise NotFound(f"no account {account}")
        return "users: [{user: {token: t}}]"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def keeper(tmp_path: Path, cluster: FakeCluster) -> Iterator[MonitoringKeeper]:
    """Programs that wait, and a promtool that refuses files with the word "wrong"."""
    waits = "while :; do sleep 0.1; done"
    for name, does in {PROMETHEUS: waits, APP: waits, PROMTOOL: "! grep -q wrong $3"}.items():
        script = tmp_path / f"{name}.sh"
        script.write_text(f"#!/bin/sh\n{does}\n")
        script.chmod(0o755)
        link = tmp_path / "bin" / name
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(script)
    free = next(port for port in range(19999, 1024, -1) if is_free(port))  # no program answers a reload
    ports = Ports(prometheus=free, state_metrics=2, telemetry=3, exporters=4)
    made = MonitoringKeeper(cast(Cluster, cluster), Settings(tmp_path, tmp_path, ports))
    yield made
    cluster.world = None
    made.step()
    assert running(tmp_path) == set()


def running(home: Path) -> set[str]:
    result = set()
    for item in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = item.read_text().split("\0")
        except OSError:
            continue
        result |= {name for name in (PROMETHEUS, APP) if str(home / "bin" / name) in words}
    return result


def said(home: Path) -> list[str]:
    result: list[str] = json.loads((home / MESSAGES_FILE).read_text())
    return result


def test_an_account_that_is_missing_stops_its_own_program_alone(
    keeper: MonitoringKeeper, cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.world = MonitoringObjects(prometheus(), state_metrics=DEPLOYMENT)
    cluster.absent = "kube-state-metrics"
    keeper.step()
    until(lambda: running(tmp_path) == {PROMETHEUS}, what="Prometheus does not start alone")
    assert said(tmp_path) == ["kube-state-metrics: no account kube-state-metrics"]
    cluster.absent = ""
    keeper.step()
    until(
        lambda: running(tmp_path) == {PROMETHEUS, APP},
        what="kube-state-metrics does not start once its account exists",
    )
    assert said(tmp_path) == []


def test_of_several_rules_only_the_wrong_ones_are_left_out(
    keeper: MonitoringKeeper, cluster: FakeCluster, tmp_path: Path
) -> None:
    good, bad = rules(RULE, name="good"), rules({**RULE, "expr": "wrong"}, name="bad")
    cluster.world = MonitoringObjects(prometheus(), (), (good, bad), {"monitoring": {}})
    keeper.step()
    assert [file.name for file in (tmp_path / "rules").glob("*.yaml")] == ["monitoring_good.yaml"]
    assert said(tmp_path) == ["rules monitoring/bad: promtool ends with 1; no rules are loaded"]
    cluster.world = MonitoringObjects(prometheus(), (), (good, rules(RULE, name="bad")), {"monitoring": {}})
    keeper.step()
    assert len(list((tmp_path / "rules").glob("*.yaml"))) == 2
    assert said(tmp_path) == []
    cluster.world = MonitoringObjects(prometheus(), (), (), {"monitoring": {}})
    keeper.step()
    assert not list((tmp_path / "rules").glob("*.yaml"))


def test_a_program_that_is_missing_is_said_with_what_gets_it(
    keeper: MonitoringKeeper, cluster: FakeCluster, tmp_path: Path
) -> None:
    (tmp_path / "bin" / PROMETHEUS).unlink()
    cluster.world = MonitoringObjects(prometheus())
    keeper.step()
    assert said(tmp_path) == ["prometheus is missing: `gpuform local up` or `gpuform local env` installs it"]
    assert running(tmp_path) == set()


def test_all_files_are_this_users_alone(
    keeper: MonitoringKeeper, cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.world = MonitoringObjects(prometheus(), (), (rules(RULE),), {"monitoring": {}})
    keeper.step()
    for name in ("prometheus.yml", "prometheus.kubeconfig", "rules/monitoring_own.yaml", MESSAGES_FILE):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600, name
