"""The real Karpenter beside a cluster: runs while its release exists, with its values, and without ports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from infra.config import load
from infra.model.prices import PriceList
from infra.plan.eks import karpenter_values
from lab.offline import karpenter_crds
from lab.rehearse.cloud.server import Cloud
from lab.rehearse.karpenter import Release, karpenter
from lab.rehearse.supervisor import Supervisor
from tests.conftest import Plane
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
HERE = Paths.here()
ENV = load(HERE.root / "Pulumi.aws-dev.yaml")
LISTENS = "0A"  # proc_pid_net_tcp(5)


@pytest.fixture(scope="module")
def kinds(control_plane: Plane) -> Plane:
    chart = karpenter_crds.chart(HERE.root / karpenter_crds.FOLDER, HERE.cache)
    helm = [str(control_plane.toolchain.path("helm")), "template", str(chart)]
    crds = subprocess.run(helm, check=True, capture_output=True, text=True).stdout
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=crds)
    return control_plane


def release(plane: Plane, **settings: Any) -> None:
    values = karpenter_values(ENV)
    values = {**values, "settings": {**values["settings"], **settings}}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "karpenter-values", "namespace": "kube-system"},
        "data": {"values": json.dumps(values)},
    }
    plane.kubectl("apply", "-f", "-", input=json.dumps(config_map))


def gone(plane: Plane) -> None:
    plane.kubectl("delete", "configmap", "karpenter-values", "-n", "kube-system", "--ignore-not-found")


@pytest.fixture
def controller(kinds: Plane, tmp_path: Path) -> Iterator[Supervisor[Release]]:
    with Cloud(ENV, PriceList(), kinds.kubeconfig, kinds.toolchain) as cloud:
        log = tmp_path / "karpenter.log"
        try:
            with karpenter(kinds.paths, kinds.toolchain, cloud.variables, log) as found:
                yield found
        finally:
            gone(kinds)
    assert not found.rss_bytes
    assert not found.running


def pid(controller: Supervisor[Release]) -> int:
    return sum(process.pid for process in controller.children.running())


def listening(pid: int) -> set[str]:
    links = {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    own = {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[9] for row in rows if row[3] == LISTENS} & own


def test_it_comes_changes_and_goes_with_its_release(kinds: Plane, controller: Supervisor[Release]) -> None:
    time.sleep(1.2)
    assert not controller.running
    release(kinds)
    until(lambda: controller.running and "Starting Controller" in controller.log.read_text())
    assert controller.rss_bytes > 30e6
    first = pid(controller)
    assert '"Serving metrics server"' in controller.log.read_text()  # its log says so
    assert listening(first) == set()

    release(kinds, batchIdleDuration="2s")
    until(lambda: pid(controller) not in (0, first))
    second = pid(controller)
    assert b"BATCH_IDLE_DURATION=2s" in Path(f"/proc/{second}/environ").read_bytes().split(b"\0")

    os.kill(second, signal.SIGKILL)
    until(lambda: controller.ended == 1 and pid(controller) not in (0, second))

    gone(kinds)
    until(lambda: not controller.running)


def test_a_setting_that_nobody_knows_keeps_it_from_running(
    kinds: Plane, controller: Supervisor[Release]
) -> None:
    release(kinds, brandNew=True)
    until(lambda: "settings.brandNew" in controller.trouble)
    assert not controller.running


def test_what_a_killed_rehearsal_left_is_ended(kinds: Plane, tmp_path: Path) -> None:
    folder = kinds.paths.state.resolve() / "controllers" / "karpenter"
    folder.mkdir(parents=True, exist_ok=True)
    left = folder / "left"
    left.unlink(missing_ok=True)
    left.symlink_to("/bin/sleep")
    process = os.spawnv(os.P_NOWAIT, left, [str(left), "600"])
    with karpenter(kinds.paths, kinds.toolchain, {}, tmp_path / "log"):
        ended, status = os.waitpid(process, os.WNOHANG)
    assert ended == process
    assert os.WTERMSIG(status) == signal.SIGTERM
