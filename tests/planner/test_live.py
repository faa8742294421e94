"""The placement model beside the real kube-scheduler, pod by pod: the same scores of the same nodes.

The model follows the scheduler's choices. So ties, which the scheduler decides by chance, are no difference.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest
import yaml

from infra.planner.placement import POLICIES, Nodes, Placed
from infra.planner.trace import MILLI, NodeSize, Shape
from lab.rehearse.cluster import Cluster
from tests import packing
from tests.conftest import Plane
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

GPU, PODS = "nvidia.com/gpu", "/api/v1/namespaces/default/pods"
STRATEGIES = {"least-allocated": "LeastAllocated", "most-allocated": "MostAllocated"}
SIZES = {"small": (5, 4, 64), "large": (3, 8, 96), "tight": (3, 8, 24), "sevenths": (1, 28, 96)}
"""By pool: nodes; GPUs, or slices under the GPU's name, of each; cores of each."""
GPUS = {0: 10, 1: 40, 2: 20, 4: 17, 8: 13}
"""GPUs of a pod, and their frequency in percent."""


@dataclass(frozen=True)
class Scheduler:
    """A kube-scheduler with a profile for each strategy; its log has all scores."""

    cluster: Cluster
    log: Path

    def place(self, profile: str, name: str, shape: Shape) -> str | None:
        """The node to which a new pod is bound; None if it fits nowhere, and then it is deleted."""
        amounts = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory_mib}Mi"}
        amounts |= {GPU: str(shape.gpus)} if shape.gpus else {}
        resources = {"requests": amounts, "limits": amounts}
        spec = {
            "schedulerName": profile,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "work", "image": "x:1", "resources": resources}],
        }
        self.cluster.create(PODS, {"metadata": {"name": name}, "spec": spec})
        pod = until(lambda: self._decided(name), what=f"no decision about {name}")
        node: str | None = pod["spec"].get("nodeName")
        if node is None:
            self.delete(name)
        return node

    def _decided(self, name: str) -> dict[str, Any]:
        pod = self.cluster.get(f"{PODS}/{name}")
        reasons = {condition.get("reason") for condition in pod["status"].get("conditions", ())}
        return pod if "nodeName" in pod["spec"] or "Unschedulable" in reasons else {}

    def delete(self, name: str) -> None:
        self.cluster.delete(f"{PODS}/{name}")

    def scores(self, name: str) -> dict[str, int]:
        """Of the nodes that can hold the pod; of one alone the scheduler computes none."""
        line = rf"final score for pod\" pod=\"default/{name}\" node=\"(\S+)\" score=(\d+)"
        return {node: int(score) for node, score in re.findall(line, self.log.read_text())}


def configuration(kubeconfig: Path) -> dict[str, Any]:
    """Profiles with one score, of the GPU resource alone."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": name,
                "plugins": {
                    "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}
                },
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {
                            "scoringStrategy": {"type": kind, "resources": [{"name": GPU, "weight": 1}]}
                        },
                    }
                ],
            }
            for name, kind in STRATEGIES.items()
        ],
    }


@pytest.fixture(scope="module")
def scheduler(control_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    folder = tmp_path_factory.mktemp("scheduler")
    config, log = folder / "config.yaml", folder / "log"
    config.write_text(yaml.safe_dump(configuration(control_plane.kubeconfig)))
    binary = str(control_plane.toolchain.path("kube-scheduler"))
    command = [binary, f"--config={config}", "--secure-port=0", "--vmodule=schedule_one=10"]
    with ExitStack() as stack:
        for pool, (count, gpus, cores) in SIZES.items():
            size = {GPU: str(gpus), "cpu": str(cores)}
            stack.enter_context(packing.nodes(control_plane, pool, count, size))
        out = stack.enter_context(log.open("wb"))
        process = stack.enter_context(subprocess.Popen(command, stdout=out, stderr=out))
        stack.callback(process.terminate)
        yield Scheduler(stack.enter_context(closing(Cluster(control_plane.kubeconfig))), log)


@pytest.fixture(autouse=True)
def no_pods_left(scheduler: Scheduler) -> Iterator[None]:
    yield
    scheduler.cluster.delete(PODS)
    sleep(1)  # until it counts none of them


def sizes() -> list[NodeSize]:
    return [
        NodeSize(f"{pool}-{index}", cores * 1000, 480 * 1024, (MILLI,) * gpus, ())
        for pool, (count, gpus, cores) in SIZES.items()
        for index in range(count)
    ]


def pods(rng: Random, count: int) -> Iterator[Shape]:
    for gpus in rng.choices([*GPUS], [*GPUS.values()], k=count):
        yield Shape(gpus, MILLI if gpus else 0, rng.choice((1000, 2000, 4000)) * max(gpus, 1), 1024)


@pytest.mark.parametrize("policy", STRATEGIES)
def test_the_model_gives_the_real_schedulers_scores(scheduler: Scheduler, policy: str) -> None:
    rng, nodes, refused = Random(11), Nodes(sizes()), 0
    model, names = POLICIES[policy](nodes, []), [size.name for size in nodes.sizes]
    running: dict[str, Placed] = {}
    for number, shape in enumerate(pods(rng, 120)):
        if running and rng.random() < 0.3:
            gone = rng.choice([*running])
            scheduler.delete(gone)
            nodes.remove(running.pop(gone))
            sleep(0.1)  # one thread of the scheduler counts it, and another one takes the next pod
        rows = nodes.np.flatnonzero(nodes.fits(shape, slice(None)))
        expected = {
            names[row]: score for row, score in zip(rows, model.score(nodes, shape, rows), strict=True)
        }
        name = f"{policy}-{number}"
        node = scheduler.place(policy, name, shape)
        assert scheduler.scores(name) == (expected if len(expected) > 1 else {})
        assert (node is None) == (not expected)
        if node is None:
            refused += 1
            continue
        assert expected[node] == max(expected.values())
        row = names.index(node)
        devices = nodes.np.flatnonzero(nodes.usable(shape, [row])[0])
        running[name] = nodes.place(shape, row, map(int, devices[: shape.gpus]))
    assert refused >= 10
