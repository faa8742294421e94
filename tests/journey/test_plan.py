"""The updates of a plan on a real control plane: no pod is without a GPU while its nodes are cut anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from lab.toolchain import Toolchain
from tests.build.environments import declared
from tests.journey.conftest import Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

POOL = {"name": "a100", "gpu": {"models": ["A100-40GB"], "count": 4}, "nodes": 3}
TRAIN = {"name": "train", "count": 4}
SERVE = {"name": "serve", "replicas": 8}
AVAILABLE = 'jsonpath={.status.availableReplicas}{"\\n"}'


def test_pods_move_to_slices_and_always_have_a_gpu(fresh: Checkout) -> None:
    root = fresh.paths.root
    works = [{"kind": "deployment", "pool": "a100", **work} for work in (TRAIN, SERVE)]
    environment = declared("embedded", POOL, {"name": "cpu", "machine": "m6i.xlarge"}, workloads=works)
    stack = root / "Pulumi.local.yaml"
    stack.write_text(yaml.safe_dump({"config": {"gpuform:environment": environment | {"name": "local"}}}))
    (root / "demands.yaml").write_text("demands: [{name: serve, gpu_memory: 4Gi, compute: 0.1}]")
    fresh.gpuform("local", "up")
    fresh.gpuform("plan", "local", "--demands", "demands.yaml", "-o", "Pulumi.planned.yaml")
    kubectl = [str(Toolchain(fresh.paths).path("kubectl")), "--kubeconfig", str(fresh.paths.kubeconfig)]
    watch = [*kubectl, "get", "deployment", "serve", "--watch", "-o", AVAILABLE]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as watching:
        try:
            for file in ("Pulumi.planned-1.yaml", "Pulumi.planned.yaml"):
                stack.write_text(Path(root / file).read_text())
                fresh.gpuform("up", "local")
        finally:
            watching.terminate()
        assert watching.stdout
        available = [int(line or 0) for line in watching.stdout.read().split("\n")[:-1]]
    assert len(available) > 1, "the rollout was seen"
    assert min(available) >= 6, "Kubernetes' default: at most a quarter of the replicas is unavailable"
    offers = fresh.offers()
    assert offers["a100"] == [{"nvidia.com/gpu": 4}]
    assert [node["nvidia.com/mig-3g.20gb"] for node in offers["a100-2"]] == [8]
