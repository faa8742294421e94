"""Live nodes of a pool with different GPU counts, each compared with the values for its own count."""

from __future__ import annotations

import pytest

from gpuform.stack.drift import nodes
from infra.plan.sharing import pool_labels, pool_taints
from tests.plan.aws_environments import TABLE

GPUS = "karpenter.k8s.aws/instance-gpu-count"

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("count", "shares", "said"),
    [
        ("1", "3", []),
        ("4", "12", []),
        ("4", "1k", [('status.allocatable["nvidia.com/gpu.shared"]', "changed", "12", "1000")]),
        ("4", "3", [('status.allocatable["nvidia.com/gpu.shared"]', "changed", "12", "3")]),
        ("1", "1k", [('status.allocatable["nvidia.com/gpu.shared"]', "changed", "3", "1000")]),
        ("8", "24", [(f'metadata.labels["{GPUS}"]', "changed", "1 or 4", "8")]),
        ("", "3", [(f'metadata.labels["{GPUS}"]', "missing", "1 or 4", "none")]),
    ],
)
def test_nodes_that_differ_in_gpus_are_each_measured_by_their_own(
    count: str, shares: str, said: list[tuple[str, ...]]
) -> None:
    env = TABLE["several counts"]
    live = {
        "metadata": {"name": "n", "labels": {**pool_labels(env, env.pools[0]), GPUS: count}},
        "spec": {"taints": pool_taints(env, env.pools[0])},
        "status": {"allocatable": {"nvidia.com/gpu.shared": shares}},
    }
    assert [(one.path, one.how, one.expected, one.found) for one in nodes.check(env, [live])] == said
