"""The platform by a GitOps controller (played), its nodes by the engine: the same state as `up` alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.toolchain import Toolchain
from tests.conftest import Plane
from tests.fakes.gitops import Controller, stages, waves
from tests.journey.conftest import Checkout
from tests.journey.theirs import declare, live, proven
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

KINDS = (
    "namespaces,configmaps,deployments,services,serviceaccounts,resourcequotas,priorityclasses,clusterroles,"
    "clusterrolebindings,roles,rolebindings,jobs,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,daemonsets"
)
WORK = {
    "name": "serve",
    "namespace": "lab",
    "kind": "deployment",
    "pool": "a100",
    "slice": "1g.5gb",
    "image": "a:1",
    "replicas": 2,
}
JOB = {
    "name": "train",
    "namespace": "lab",
    "kind": "job",
    "pool": "a100",
    "slice": "1g.5gb",
    "image": "a:1",
    "parallelism": 1,
}
MORE = {
    "namespaces": [{"name": "lab", "quota": {"a100": {"1g.5gb": 4}}}],
    "priorities": {"gpu-high": 1000},
    "workloads": [WORK, JOB],
}


def ours(theirs: Plane) -> dict[str, Any]:
    """What the stack's objects and the operator's DaemonSets say, without what a server or helm adds."""
    items = json.loads(theirs.kubectl("get", KINDS, "-A", "-o", "json"))["items"]
    found = {}
    for item in items:
        meta = item["metadata"]
        if (meta.get("labels") or {}).get("gpuform.io/environment") != "there" and item[
            "kind"
        ] != "ClusterPolicy":
            continue
        content = {key: value for key, value in item.items() if key not in ("metadata", "status")}
        if item["kind"] == "Service":
            content["spec"] = {key: content["spec"][key] for key in ("selector", "ports", "type")}
        if item["kind"] == "Job":  # its pods' labels have the job's uid
            content["spec"] = content["spec"]["template"]["spec"]
        if item["kind"] == "ServiceAccount":
            content.pop("secrets", None)
        labels = {
            key: value for key, value in meta.get("labels", {}).items() if key.startswith("gpuform.io/")
        }
        found[f"{item['kind']} {meta.get('namespace', '')}/{meta['name']}"] = labels, content
    return found


def begun(phases: list[str]) -> bool:
    return len(phases) == 3 and set(phases) <= {"Running", "Succeeded"}


def node(theirs: Plane) -> Any:
    found = live(theirs, "theirs-gpu")
    found["metadata"]["labels"].pop("nvidia.com/gfd.timestamp")
    return found["metadata"]["labels"], found["spec"].get("taints"), proven(theirs, "theirs-gpu")["offers"]


def running(theirs: Plane) -> list[str]:
    pods = json.loads(theirs.kubectl("get", "pods", "-n", "lab", "-o", "json"))["items"]
    return [pod["status"]["phase"] for pod in pods]


@pytest.mark.usefixtures("gate")
def test_waves_and_nodes_give_the_state_of_up(
    fresh: Checkout, theirs: Plane, repository: str, toolchain: Toolchain, tmp_path: Path
) -> None:
    declare(fresh, theirs, repository, {"rack": "7"}, **MORE)
    subprocess.run(["git", "init", "-q", str(tmp_path / "flux")], check=True)
    for name in ("argocd", "flux"):
        folder = tmp_path / name / "clusters/there"
        said = fresh.gpuform("render", "there", "--gitops", name, "-o", str(folder)).stdout
        assert "MIG layouts of a100" in said
        kubectl, helm = toolchain.path("kubectl"), toolchain.path("helm")
        controller = Controller(theirs.kubeconfig, kubectl, helm)
        controller.sync(waves(folder) if name == "argocd" else stages(tmp_path / name, "clusters/there"))
        fresh.gpuform("up", "there", "--only", "nodes,layouts", "--yes")
        assert until(lambda: running(theirs), begun, 90)
        seen = ours(theirs), node(theirs)
        unlimited = fresh.gpuform("up", "there", "--yes", code=2)
        assert "the last update was `--only nodes,layouts`" in unlimited.stderr
        assert "creates" not in fresh.gpuform("preview", "there", "--only", "nodes,layouts").stdout
        fresh.gpuform("destroy", "there", "--yes")
        controller.prune()
        until(lambda: theirs.kubectl("get", "namespaces", "-o", "name"), lambda all_: "lab" not in all_, 90)
        left = live(theirs, "theirs-gpu")["metadata"]["labels"]
        assert "gpuform.io/pool" not in left
        if name == "argocd":
            first = seen
    fresh.gpuform("up", "there", "--yes")
    until(lambda: running(theirs), begun, 90)
    assert first == seen == (ours(theirs), node(theirs))
    limited = fresh.gpuform("up", "there", "--only", "nodes,layouts", "--yes", code=2)
    assert "has applied the platform itself" in limited.stderr
