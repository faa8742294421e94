"""CERN's cluster rehearsed: nodes of Magnum's groups, their configuration, and a group that grows."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.clouds.existing.preflight.cluster import (
    LiveCluster,
    judge_feature_discovery,
    judge_operator,
    list_objects,
)
from gpuform.stack.preflight.check import Result
from infra.config import KEY, parse
from lab.rehearse import fidelity
from lab.rehearse.cluster import NODES, Cluster
from lab.rehearse.document import document
from lab.rehearse.options import Options
from lab.rehearse.plane import paths_of_run
from lab.rehearse.run import Rehearsal
from lab.toolchain import Toolchain
from tests.build.aws_stacks import stack
from tests.journey.conftest import HERE, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

STACK = "openstack-dev"
GROUP = "magnum.openstack.org/nodegroup"
TAINT = {"key": "node-role.kubernetes.io/gpu", "value": "true", "effect": "NoSchedule"}
UNREACHABLE = "node.kubernetes.io/unreachable"
RUNNERS, PER_NODE, MOST = 8, 2, 3
Json = dict[str, Any]


def rehearsed(paths: Paths, folder: Path) -> tuple[Json, dict[str, list[Json]]]:
    """The outcome with more runners than the elastic group can ever hold, and its nodes by group."""
    nodes: dict[str, list[Json]] = {}
    shutil.copy(HERE.root / f"Pulumi.{STACK}.yaml", paths.root)
    runners = {"runner": {"replicas": RUNNERS}}
    work = [{**item, **runners.get(item["name"], {})} for item in stack(STACK)["workloads"]]
    file = folder / "work.yaml"
    file.write_text(yaml.safe_dump({"workloads": work}))

    def record_nodes(text: str) -> None:
        if text.startswith("half of the pods removed"):
            with closing(Cluster(paths_of_run(paths, STACK).kubeconfig)) as cluster:
                for node in cluster.items(NODES):
                    nodes.setdefault(node["metadata"]["labels"][GROUP], []).append(node)

    options = Options(workloads=file, timeout_s=120)
    return document(Rehearsal(paths, Toolchain(paths), STACK, options, record_nodes).run()), nodes


def test_it_ends_with_neighbours_placed_labelled_nodes_and_a_full_group(tmp_path: Path) -> None:
    paths = make_checkout(tmp_path).paths
    output, nodes = rehearsed(paths, tmp_path)
    assert output["troubles"] == []
    _placed(output)
    _labelled(nodes)
    _grown(output)
    _shrunk(output)
    assert (output["kind"], output["karpenter"], output["autoscaler"]) == ("openstack", "none", "counted")
    assert any(text.startswith("cluster-autoscaler: elastic groups have") for text in output["simulated"])
    assert any("m2.medium" in text and "not declared" in text for text in output["simulated"])
    assert {"the readiness gate's program", "the pool keeper's program"} <= set(output["real"])
    assert any("surplus nodes" in text for text in output["cannot_show"])
    assert not (paths_of_run(paths, STACK).state).exists(), "nothing of it is left"


def _placed(output: Json) -> None:
    resources = {pool["name"]: pool["resources"] for pool in output["pools"]}
    special = {"gpu-t4": "nvidia.com/gpu.shared", "gpu-a100": "nvidia.com/mig-2g.10gb"}
    used = {
        name: amounts.get(special.get(name, "nvidia.com/gpu"), {}).get("used")
        for name, amounts in resources.items()
    }
    most = PER_NODE * MOST
    assert used == {"default-worker": None, "gpu-t4": 3, "gpu-a100": 2, "gpu-v100s": 1, "gpu-ci": most}
    assert resources["gpu-a100"]["nvidia.com/mig-3g.20gb"] == {"offers": 1, "used": 1, "idle": 0}
    assert resources["gpu-t4"]["nvidia.com/gpu.shared"]["offers"] == 8
    cells = [cell for node in output["nodes"] for gpu in node["gpus"] for cell in gpu if cell["pod"]]
    neighbours = [cell["pod"].split("-")[0] for cell in cells if cell["namespace"].startswith("neighbours")]
    assert set(neighbours) == {"simulation", "inference", "notebook"}


def _labelled(nodes: dict[str, list[Json]]) -> None:
    sizes = {"default-worker": 1, "gpu-t4": 2, "gpu-a100": 1, "gpu-v100s": 1, "gpu-ci": MOST}
    assert {group: len(found) for group, found in nodes.items()} == sizes
    for group, result in nodes.items():
        for node in result:
            labels = node["metadata"]["labels"]
            # kwokctl has the node controller look every 25 s: its taint outlasts the reboot for MIG.
            taints = [one for one in node["spec"].get("taints", []) if one["key"] != UNREACHABLE]
            if group == "default-worker":
                assert ("gpuform.io/pool" not in labels, taints) == (True, [])
                continue
            assert labels["gpuform.io/pool"] == group
            assert taints == [TAINT], f"{node['metadata']['name']}: tainted, and let in by the gate"
            assert labels["nvidia.com/gpu.present"] == "true"


def _grown(output: Json) -> None:
    waiting = output["pods"]["pending"]
    assert [(item["workload"], item["pool"]) for item in waiting] == [("runner", "gpu-ci")] * 2
    for item in waiting:
        assert "group gpu-ci is at its maximum of 3 nodes" in item["why"]
        assert "insufficient gpu" in item["why"]
    pool = next(pool for pool in output["pools"] if pool["name"] == "gpu-ci")
    assert (pool["fixed"], pool["launched"], pool["in_vain"]) == (False, MOST, [])
    fixed = {line["node"]: line["fixed"] for line in output["timeline"]}
    assert fixed["gpu-t4-0"], "the group has a fixed size"
    assert not fixed["gpu-ci-2"]


def _shrunk(output: Json) -> None:
    """Four runners are left, which fit on two nodes; the removed node has a reason."""
    (gone,) = output["shrink"]["gone"]
    assert gone["node"].startswith("gpu-ci-")
    assert "counted" in gone["why"]
    assert output["shrink"]["after"]["pods"] == RUNNERS // 2


def test_the_clusters_own_operator_is_simulated_and_found_by_preflight(tmp_path: Path) -> None:
    paths = make_checkout(tmp_path).paths
    pool = {"name": "gpu-t4", "machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 2}}}
    work = {"name": "web", "kind": "deployment", "pool": "gpu-t4", "replicas": 2, "image": "x:1"}
    cluster = {"kind": "openstack", "driver": "capi", "template": "t", "version": "1.34"}
    declared = {"name": "own", "cluster": cluster, "gpu_operator": {"mode": "existing"}}
    content = {"config": {KEY: {**declared, "pools": [pool], "workloads": [work]}}}
    (paths.root / "Pulumi.own.yaml").write_text(yaml.safe_dump(content))
    result: list[Result] = []

    def check_operator(text: str) -> None:
        if text.startswith("half of the pods removed"):
            kubeconfig = str(paths_of_run(paths, "own").kubeconfig)
            parts = LiveCluster(parse(stack("openstack-dev")), False, partial(list_objects, kubeconfig, None))
            result.extend((judge_operator(parts), judge_feature_discovery(parts)))

    outcome = Rehearsal(paths, Toolchain(paths), "own", Options(timeout_s=120), check_operator).run()
    assert (document(outcome)["troubles"], outcome.placed) == ([], 2)
    assert fidelity.OPERATOR_REPLACED in outcome.simulated
    assert result[0].fact == "none is there", "the simulated one has no ClusterPolicy"
    assert result[1].verdict == "FAIL"
    assert "of Helm release gpu-operator/gpu-operator: two would delete" in result[1].fact
