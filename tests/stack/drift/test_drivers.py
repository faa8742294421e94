"""A driver that the operator did not install belongs to its owner, and is not drift."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.stack.drift import nodes
from infra.config import parse
from infra.plan.sharing import pool_labels

pytestmark = pytest.mark.unit

DRIVER = "nvidia.com/cuda.driver-version.full"
HOSTS = {"kind": "hosts", "driver": {"source": "nvidia", "version": "550.163.01"}, "kubeconfig": "/k"}
EXISTING = {"kind": "existing", "kubeconfig": "/k"}
OWNERS: list[tuple[dict[str, Any], dict[str, str], bool]] = [
    (HOSTS, {}, False),
    (EXISTING, {"driver": "host"}, False),
    (EXISTING, {"mode": "device_plugin"}, False),
    (EXISTING, {}, True),
]


@pytest.mark.parametrize(("cluster", "operator", "drifted"), OWNERS)
def test_only_the_operators_own_driver_can_drift(
    cluster: dict[str, Any], operator: dict[str, str], drifted: bool
) -> None:
    place = {"hosts": ["t4-0"]} if cluster["kind"] == "hosts" else {"selector": {"a": "b"}}
    pool = {"name": "t4", "gpu": {"models": ["T4"], "count": 1}, **place}
    env = parse({"name": "e", "cluster": cluster, "gpu_operator": operator, "pools": [pool]})
    node = {
        "metadata": {
            "name": "t4-0",
            "labels": {**pool_labels(env, env.pools[0]), DRIVER: "550.163.01", "a": "b"},
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }
    found = [one.path for one in nodes.check(env, [node])]
    assert found == ([f'metadata.labels["{DRIVER}"]'] if drifted else [])
