"""A rolling upgrade of three hosts that have joined a cluster: the embedded one, with a node for each."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ansible.conftest import BedFactory
from tests.ansible.plays import NEW, OLD, boot_time, driver_inventory, driver_version, upgrade_driver
from tests.bed import Bed
from tests.conftest import Plane

pytestmark = [pytest.mark.hosts, pytest.mark.cluster, pytest.mark.nightly]

DRIVER = (
    *("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-support"),
    *("nvidia-persistenced", "libnvidia-ml1"),
)
REASON = "gpuform.io/driver-upgrade-reason"


@pytest.fixture(scope="module")
def joined(bed: BedFactory, control_plane: Plane) -> Iterator[Bed]:
    made = bed(3)
    made.furnish_repository(drivers=(OLD, NEW), toolkits=(), cuda=())
    packages = " ".join(f"{name}={OLD}-1" for name in DRIVER)
    for host in made.hosts:  # by hand, as before gpuform: faster than a playbook, and held as well
        host.write("/etc/apt/sources.list.d/old.list", f"deb [trusted=yes] {made.repository.url} ./\n")
        host.run(f"apt-get update -qq && apt-get install -qq -y --no-install-recommends {packages}")
        host.run(f"apt-mark hold {' '.join(DRIVER)}; rm /etc/apt/sources.list.d/old.list")
    for host in made.hosts:
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(_node(host.name)))
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(_deployment(host.name)))
        control_plane.kubectl("rollout", "status", f"deployment/on-{host.name}", "--timeout=120s")
    yield made
    for host in made.hosts:
        control_plane.kubectl("delete", "deployment", f"on-{host.name}")
        control_plane.kubectl("delete", "node", host.name)
    made.down()


def test_a_budget_that_allows_no_eviction_stops_the_upgrade_before_anything_is_changed(
    joined: Bed, control_plane: Plane
) -> None:
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(_budget("on-gpu-1")))
    before = boot_time(joined.host("gpu-1"))
    done = upgrade_driver(_inventory(joined, control_plane, nvidia_driver_drain_timeout=15))
    control_plane.kubectl("delete", "pdb", "on-gpu-1")

    assert not done.ok
    assert "Drain the node within its disruption budgets" in done.hosts["gpu-1"].message
    assert "disruption budget" in done.hosts["gpu-1"].message
    assert [driver_version(host) for host in joined.hosts] == [OLD] * 3
    assert boot_time(joined.host("gpu-1")) == before
    assert _cordoned(control_plane) == ["gpu-1"]
    assert "Drain the node" in _notes(control_plane, "gpu-1")[REASON]


def test_a_bad_host_ends_the_upgrade_and_the_next_run_goes_on_from_there(
    joined: Bed, control_plane: Plane
) -> None:
    first, second, third = joined.hosts
    boots = {host.name: boot_time(host) for host in joined.hosts}
    second.play("Tesla T4", 0)  # comes back without its GPU
    with _Watch(control_plane) as watch:
        done = upgrade_driver(_inventory(joined, control_plane))

    assert not done.ok
    assert done.hosts["gpu-1"].ok, done.hosts["gpu-1"].message
    assert "declared are driver 580.95.05, 1 x Tesla T4" in done.hosts["gpu-2"].message
    assert "its node stays cordoned, run this again" in done.hosts["gpu-2"].message
    assert not done.hosts["gpu-3"].ok
    assert driver_version(first) == NEW
    assert driver_version(third) == OLD
    assert boot_time(first) != boots["gpu-1"]
    assert boot_time(second) != boots["gpu-2"]
    assert boot_time(third) == boots["gpu-3"]
    assert watch.at_once == [{"gpu-1"}, {"gpu-2"}]
    assert watch.emptied == {"gpu-1", "gpu-2"}
    assert _cordoned(control_plane) == ["gpu-2"]
    assert REASON not in _notes(control_plane, "gpu-1")
    assert "declared are driver 580.95.05" in _notes(control_plane, "gpu-2")[REASON]

    second.play("Tesla T4", 1)
    control_plane.kubectl("cordon", "gpu-3")  # cordoned for another reason
    boots = {host.name: boot_time(host) for host in joined.hosts}
    done = upgrade_driver(_inventory(joined, control_plane))

    assert done.ok, done.failures
    assert done.hosts["gpu-1"].changed == 0
    assert [driver_version(host) for host in joined.hosts] == [NEW] * 3
    assert boot_time(first) == boots["gpu-1"]
    assert boot_time(third) != boots["gpu-3"]
    assert _cordoned(control_plane) == ["gpu-3"]  # was cordoned before, stays so
    assert not [
        name for host in joined.hosts for name in _notes(control_plane, host.name) if "driver" in name
    ]


class _Watch:
    """Sets of cordoned nodes after every change in the cluster, and nodes that lost their pod meanwhile."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.at_once: list[set[str]] = []
        self.emptied: set[str] = set()

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(1):
            now = set(_cordoned(self._plane))
            if now and (not self.at_once or self.at_once[-1] != now):
                self.at_once.append(now)
            bound = {pod["spec"].get("nodeName") for pod in _items(self._plane, "pods")}
            self.emptied |= now - bound


def _inventory(bed: Bed, plane: Plane, **more: Any) -> dict[str, Any]:
    cluster = {
        "nvidia_driver_kubeconfig": str(plane.kubeconfig),
        "nvidia_driver_kubectl": str(plane.toolchain.path("kubectl")),
    }
    return driver_inventory(bed, NEW, **cluster, **more)


def _items(plane: Plane, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(plane.kubectl("get", kind, "--output", "json"))["items"]
    return found


def _cordoned(plane: Plane) -> list[str]:
    return [node["metadata"]["name"] for node in _items(plane, "nodes") if node["spec"].get("unschedulable")]


def _notes(plane: Plane, node: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(plane.kubectl("get", "node", node, "--output", "json"))["metadata"][
        "annotations"
    ]
    return found


def _node(name: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _deployment(host: str) -> dict[str, Any]:
    labels = {"app": f"on-{host}"}
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": host},
        "containers": [{"name": "sleep", "image": "example.invalid/sleep"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"on-{host}"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _budget(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
    }
