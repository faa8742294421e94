"""Manifests of the tests against the real CRDs of their kinds: as they are published, and once fixed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.manifests import documents, edit, judge
from gpuform.manifests.pods import find
from lab.toolchain.module_files import Source, cached_folder
from tests.build.environments import on
from tests.conftest import Plane
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

HERE = Path(__file__).parent
FILES = ("kinds.yaml", "published.yaml")
MODULES = {
    "JobSet": ("sigs.k8s.io/jobset", "config/components/crd/bases", "jobset.x-k8s.io_jobsets.yaml"),
    "LeaderWorkerSet": (
        "sigs.k8s.io/lws",
        "config/crd/bases",
        "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    ),
    "RayCluster": (
        "github.com/ray-project/kuberay/ray-operator",
        "config/crd/bases",
        "ray.io_rayclusters.yaml",
    ),
    "PyTorchJob": (
        "github.com/kubeflow/training-operator",
        "manifests/base/crds",
        "kubeflow.org_pytorchjobs.yaml",
    ),
    "MPIJob": ("github.com/kubeflow/mpi-operator", "manifests/base", "kubeflow.org_mpijobs.yaml"),
    "SparkApplication": (
        "github.com/kubeflow/spark-operator/v2",
        "config/crd/bases",
        "sparkoperator.k8s.io_sparkapplications.yaml",
    ),
    "InferenceService": (
        "github.com/kserve/kserve",
        "charts/kserve-crd/templates",
        "serving.kserve.io_inferenceservices.yaml",
    ),
    "Workflow": (
        "github.com/argoproj/argo-workflows/v3",
        "manifests/base/crds/full",
        "argoproj.io_workflows.yaml",
    ),
    "TrainJob": (
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        "trainer.kubeflow.org_trainjobs.yaml",
    ),
}
"""Go module, folder and file of the CRD of each kind."""
SHARED = {"machine": "p4d.24xlarge", "nodes": 20, "sharing": {"kind": "time_slicing", "replicas": 4}}
ENV = on("embedded", SHARED, {"machine": "p4d.24xlarge", "nodes": 9}, {"machine": "m6i.4xlarge", "nodes": 2})


def fixed(text: str) -> str:
    given = documents.parse("f", text)
    pods = [pod for document in given for pod in find(document)]
    found = judge.judge(ENV, pods, given, "default").findings
    result, _ = edit.add("f", text, [item for finding in found for item in finding.additions])
    assert result != text
    return result


@pytest.fixture(scope="module", params=MODULES)
def kind(request: pytest.FixtureRequest, control_plane: Plane) -> Iterator[str]:
    module, folder, file = MODULES[request.param]
    source = Source(
        f"crds-{request.param.lower()}", f"the CRD of {request.param}", module, Path(folder), file
    )
    crd = cached_folder(source, HERE / "crds", control_plane.paths.cache) / file
    control_plane.kubectl("apply", "--server-side", "-f", str(crd))
    until(
        lambda: json.loads(control_plane.kubectl("get", "-f", str(crd), "-o", "json"))["status"][
            "conditions"
        ],
        lambda found: ("Established", "True") in [(item["type"], item["status"]) for item in found or ()],
        30,
    )
    yield request.param
    control_plane.kubectl("delete", "-f", str(crd))


def test_the_server_accepts_them_before_and_after(kind: str, control_plane: Plane) -> None:
    accepted = 0
    for name in FILES:
        text = (HERE / name).read_text()
        for version in (text, fixed(text)):
            for document in documents.parse(name, version):
                if document.kind == kind:
                    answer = create(control_plane, dict(document.value))
                    assert answer.returncode == 0, answer.stderr
                    accepted += 1
    assert accepted >= 2


def create(plane: Plane, manifest: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """As the server would answer; it is strict about fields, and nothing is stored."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    command = [str(plane.toolchain.path("kubectl")), "--kubeconfig", str(plane.kubeconfig), "create"]
    command += ["--dry-run=server", "--validate=strict", "-f", "-"]
    text = json.dumps({**manifest, "metadata": metadata})
    return subprocess.run(command, input=text, capture_output=True, text=True)
