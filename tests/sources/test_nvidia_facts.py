"""NVIDIA's talk of 2018: different GPUs, other runtimes, and pods without GPU requests (FACTS 1, row 22).

Faulty GPUs and restarted plugins are in tests/simulator.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.model.errors import InputError
from infra.model.gpu import GPUS
from infra.plan import gpu_operator, inventory, sharing

pytestmark = pytest.mark.unit


def hosts(gpu: dict[str, Any], **cluster: Any) -> Environment:
    pools = [{"name": "p", "hosts": ["node"], "gpu": gpu}]
    named = {"kind": "hosts", "driver": {"source": "nvidia", "version": "580.95.05"}, **cluster}
    return parse({"name": "n", "cluster": named, "pools": pools})


def chosen(**wanted: Any) -> set[str]:
    """Catalogue models that match a pool with these required GPU properties."""
    pool = {"name": "p", "nodes": 1, "gpu": {"count": 8, **wanted}}
    env = parse({"name": "n", "cluster": {"kind": "embedded"}, "pools": [pool]})
    return {gpu.name for gpu in env.pools[0].gpus}


def test_nvidia_row_22_a_pool_by_what_its_gpus_have() -> None:
    """Minimum memory and NVLink are from the talk; compute capability is our addition."""
    assert chosen(memory_gib=130) == {"H200", "B200", "GB200", "B300"}
    assert chosen(nvlink=True, memory_gib=75) == {
        *("A100-SXM4-80GB", "H100-SXM", "H200"),
        *("B200", "GB200", "B300"),
    }
    linked, compute = chosen(nvlink=True), chosen(compute="9.0")
    assert "A100-PCIE-40GB" not in linked
    assert {name for name in GPUS if name.startswith(("H", "B"))} <= compute
    assert "A100-SXM4-80GB" not in compute
    with pytest.raises(InputError, match=re.escape("pools[0].gpu: no known GPU has memory_gib 500")):
        chosen(memory_gib=500)


def test_nvidia_row_22_different_gpus_in_one_cluster() -> None:
    """Each pool's pods run on their own GPUs: by pool, or by the product label of discovery."""
    pools = [
        {"name": name, "machine": name.replace("-", "."), "nodes": 1} for name in ("g2-xlarge", "g3-xlarge")
    ]
    env = parse({"name": "n", "cluster": {"kind": "embedded"}, "pools": pools})
    own = [sharing.pool_labels(env, pool)["gpuform.io/pool"] for pool in env.pools]
    assert own == ["g2-xlarge", "g3-xlarge"]
    assert [gpu.product for pool in env.pools for gpu in pool.gpus] == ["Tesla-T4", "Tesla-V100S-PCIE-32GB"]


def test_nvidia_row_22_another_runtime() -> None:
    found = inventory.inventory(hosts({"models": ["T4"], "count": 1}, runtime="crio"), {})
    assert found["_meta"]["hostvars"]["node"]["nvidia_container_toolkit_runtime"] == "crio"


def test_nvidia_row_22_a_pod_that_asks_for_no_gpu_sees_none() -> None:
    """An image may set NVIDIA_VISIBLE_DEVICES=all: it has no effect in unprivileged containers."""
    pool = {"name": "p", "machine": "g2.xlarge", "nodes": 1}
    env = parse({"name": "n", "cluster": {"kind": "embedded"}, "pools": [pool]})
    values = gpu_operator.values(env)
    listens = {one["name"]: one["value"] for one in values["toolkit"]["env"]}
    assert listens["ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"] == "false"
    assert values["cdi"]["enabled"] is True
