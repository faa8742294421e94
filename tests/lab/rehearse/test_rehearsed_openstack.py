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
from gpuform.clouds.existing.preflight.cluster import Parts, discovery, listed, operator
from gpuform.stack.preflight.check import Judged
from infra.config import KEY, parse
from lab.rehearse import fidelity
from lab.rehearse.cluster import NODES, Cluster
from lab.rehearse.document import document
from lab.rehearse.options import Options
from lab.rehearse.plane import apart
from lab.rehearse.run import Rehearsal
from lab.toolchain import Toolchain
from tests.components.openstack_stacks import stack
from tests.journey.conftest import HERE, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

STACK = "openstack-dev"
GROUP = "magnum.openstack.org/nodegroup"
TAINT = {"key": "node-role.kubernetes.io/gpu", "value": "true", "effect": "NoSchedule"}
RUNNERS, PER_NODE, MOST = 8, 2, 3
Json = dict[str, Any]


def rehearsed(paths: Paths, folder: Path) -> tuple[Json, dict[str, list[Json]]]:
    """The outcome with more runners than the elastic group can ever hold, and its nodes by group."""
    file, tools, nodes = f"Pulumi.{STACK}.yaml", Toolchain(paths), dict[str, list[Json]]()
    shutil.copy(HERE.root / file, paths.root)
    work = yaml.safe_load((HERE.root / file).read_text())["config"][KEY]["workloads"]
    for one in work:
        if one["name"] == "runner":
            one["replicas"] = RUNNERS
    asked = folder / "work.yaml"
    asked.write_text(yaml.safe_dump({"workloads": work}))

    def said(text: str) -> None:
        if text.startswith("half of the pods removed"):
            with closing(Cluster(apart(paths, STACK).kubeconfig)) as cluster:
                for one in cluster.items(NODES):
                    nodes.setdefault(one["metadata"]["labels"][GROUP], []).append(one)

    options = Options(workloads=asked, timeout_s=120)
    return document(Rehearsal(paths, tools, STACK, options, said).run()), nodes


def test_it_ends_with_neighbours_placed_labelled_nodes_and_a_group_at_its_most(tmp_path: Path) -> None:
    paths = make_checkout(tmp_path).paths
    said, nodes = rehearsed(paths, tmp_path)
    assert said["troubles"] == []
    _placed(said)
    _labelled(nodes)
    _grown(said)
    _shrunk(said)
    assert (said["kind"], said["karpenter"], said["autoscaler"]) == ("openstack", "none", "counted")
    assert any(text.startswith("cluster-autoscaler: elastic groups have") for text in said["simulated"])
    assert any("m2.medium" in text and "not declared" in text for text in said["simulated"])
    assert {"the readiness gate's program", "the pool keeper's program"} <= set(said["real"])
    assert any("surplus nodes" in text for text in said["cannot_show"])
    assert not (apart(paths, STACK).state).exists(), "nothing of it is left"


def _placed(said: Json) -> None:
    pools = {pool["name"]: pool for pool in said["pools"]}
    assert {
        name: pool["resources"].get(key, {}).get("used")
        for name, pool in pools.items()
        for key in (
            {"gpu-t4": "nvidia.com/gpu.shared", "gpu-a100": "nvidia.com/mig-2g.10gb"}.get(
                name, "nvidia.com/gpu"
            ),
        )
    } == {"default-worker": None, "gpu-t4": 3, "gpu-a100": 2, "gpu-v100s": 1, "gpu-ci": PER_NODE * MOST}
    assert pools["gpu-a100"]["resources"]["nvidia.com/mig-3g.20gb"] == {"offers": 1, "used": 1, "idle": 0}
    assert pools["gpu-t4"]["resources"]["nvidia.com/gpu.shared"]["offers"] == 8
    neighbours = {
        cell["pod"].split("-")[0]: cell["namespace"]
        for node in said["nodes"]
        for gpu in node["gpus"]
        for cell in gpu
        if cell["pod"] and cell["namespace"].startswith("neighbours")
    }
    assert set(neighbours) == {"simulation", "inference", "notebook"}


def _labelled(nodes: dict[str, list[Json]]) -> None:
    sizes = {"default-worker": 1, "gpu-t4": 2, "gpu-a100": 1, "gpu-v100s": 1, "gpu-ci": MOST}
    assert {group: len(found) for group, found in nodes.items()} == sizes
    for group, found in nodes.items():
        for node in found:
            labels, taints = node["metadata"]["labels"], node["spec"].get("taints", [])
            if group == "default-worker":
                assert ("gpuform.io/pool" not in labels, taints) == (True, [])
                continue
            assert labels["gpuform.io/pool"] == group
            assert taints == [TAINT], f"{node['metadata']['name']}: tainted, and let in by the gate"
            assert labels["nvidia.com/gpu.present"] == "true"


def _grown(said: Json) -> None:
    waiting = said["pods"]["pending"]
    assert {(one["workload"], one["pool"]) for one in waiting} == {("runner", "gpu-ci")}
    assert len(waiting) == RUNNERS - PER_NODE * MOST
    assert all("group gpu-ci is at its maximum of 3 nodes" in one["why"] for one in waiting)
    assert all("insufficient gpu" in one["why"] for one in waiting)
    pool = next(one for one in said["pools"] if one["name"] == "gpu-ci")
    assert (pool["fixed"], pool["launched"], pool["in_vain"]) == (False, MOST, [])
    fixed = {line["node"]: line["fixed"] for line in said["timeline"]}
    assert fixed["gpu-t4-0"], "the group has a fixed size"
    assert not fixed["gpu-ci-2"]


def _shrunk(said: Json) -> None:
    """Four runners are left, which fit on two nodes; the removed node has a reason."""
    gone = [one["node"] for one in said["shrink"]["gone"]]
    assert len(gone) == 1, said["shrink"]
    assert gone[0].startswith("gpu-ci-")
    assert said["shrink"]["after"]["pods"] == RUNNERS // 2
    assert "counted" in said["shrink"]["gone"][0]["why"]


def test_the_clusters_own_operator_is_simulated_and_found_by_preflight(tmp_path: Path) -> None:
    paths = make_checkout(tmp_path).paths
    pool = {"name": "gpu-t4", "machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 2}}}
    work = {"name": "web", "kind": "deployment", "pool": "gpu-t4", "replicas": 2, "image": "x:1"}
    cluster = {"kind": "openstack", "driver": "capi", "template": "t", "version": "1.34"}
    declared = {"name": "own", "cluster": cluster, "gpu_operator": {"mode": "existing"}}
    content = {"config": {KEY: {**declared, "pools": [pool], "workloads": [work]}}}
    (paths.root / "Pulumi.own.yaml").write_text(yaml.safe_dump(content))
    found: list[Judged] = []

    def said(text: str) -> None:
        if text.startswith("half of the pods removed"):
            kubeconfig = str(apart(paths, "own").kubeconfig)
            parts = Parts(parse(stack()), False, partial(listed, kubeconfig, None))
            found.extend((operator(parts), discovery(parts)))

    outcome = Rehearsal(paths, Toolchain(paths), "own", Options(timeout_s=120), said).run()
    assert (document(outcome)["troubles"], outcome.placed) == ([], 2)
    assert fidelity.THEIRS in outcome.simulated
    assert found[0].fact == "none is there", "the simulated one has no ClusterPolicy"
    assert found[1].verdict == "FAIL"
    assert "of Helm release gpu-operator/gpu-operator: two would delete" in found[1].fact
