from __future__ import annotations

from typing import Any

import yaml

from infra.config import parse

ENV = parse(
    yaml.safe_load("""
        name: test
        cluster: {kind: embedded}
        pools:
        - {name: t4, machine: g2.5xlarge, nodes: 1, sharing: {kind: time_slicing, replicas: 4}}
        - {name: cpu, machine: m6i.xlarge, nodes: 1}
    """)
)


def node(name: str, pool: str, ready: str = "True", **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"gpuform.io/pool": pool}},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "allocatable": {"cpu": "4", **{f"nvidia.com/{key}": value for key, value in allocatable.items()}},
        },
    }


def pod(name: str, on: str | None, status: dict[str, Any], shares: int = 0) -> dict[str, Any]:
    limits = {"cpu": "1", "nvidia.com/gpu.shared": str(shares)} if shares else {"cpu": "1"}
    spec: dict[str, Any] = {"containers": [{"resources": {"limits": limits}}]}
    if on:
        spec["nodeName"] = on
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": status}
