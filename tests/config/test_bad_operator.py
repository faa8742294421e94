"""Bad settings of the operator: a table of declarations and messages, and of accepted input."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from tests.config.edits import message

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
ROWS = yaml.safe_load((HERE / "bad_operator.yaml").read_text())
PLACES: dict[str, dict[str, str]] = {"embedded": {}, "existing": {"kubeconfig": "/k"}}
T4 = {"name": "t4", "machine": "g2.5xlarge"}
G4DN = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}


def environment(row: dict[str, Any]) -> dict[str, Any]:
    kind, pools = row.get("cluster", "existing"), row.get("pools")
    if kind in PLACES:
        place = {"nodes": 1} if kind == "embedded" else {"selector": {"a": "b"}}
        found = {"name": "e", "cluster": {"kind": kind, **PLACES[kind]}, "pools": [T4]}
        found["pools"] = [{**pool, **place} for pool in pools or [T4]]
    else:
        found = copy.deepcopy(yaml.safe_load((HERE / f"good_{kind}.yaml").read_text()))
        found["pools"] = pools or found["pools"]
        found["cluster"] |= row.get("changed", {})
        for key in ("workloads", *row.get("without", ())):
            found.pop(key, None)
    return {**found, "gpu_operator": row["operator"]}


@pytest.mark.parametrize("row", ROWS, ids=[row["what"] for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(environment(row)) == row["said"]


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row["what"] for row in ROWS}) == len(ROWS) > 40


ALL = ["CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266"]
FINE: list[dict[str, Any]] = [
    {"operator": {"version": "v25.3.1"}},
    {"operator": {"version": "v24.3.0", "acknowledge": ALL}},
    {"operator": {"toolkit_version": "1.15.0", "acknowledge": ALL}},
    {"operator": {"toolkit_version": "1.17.8"}},
    {"operator": {"driver_version": "450.80.02", "kernel_modules": "proprietary"}},
    {"operator": {"upgrade": {"auto": False}, "cdi": False}},
    {"operator": {"upgrade": {"max_parallel": 3, "max_unavailable": 2, "drain": {}}}},
    {"operator": {"driver": "host", "toolkit_version": "1.17.8"}},
    {"operator": {"toolkit_env": {"RUNTIME_CONFIG_SOURCE": "command,file=/etc/containerd/config.toml"}}},
    {"operator": {"version": "v25.3.1", "toolkit_env": {"CONTAINERD_CONFIG": "/etc/k3s/config.toml"}}},
    {"cluster": "embedded", "operator": {"toolkit_env": {"RUNTIME_RESTART_MODE": "systemd"}}},
    {"operator": {"toolkit": "host", "driver_version": "580.95.05"}},
    {"operator": {"mode": "device_plugin", "version": "0.19.0", "cdi": False}},
    {"cluster": "embedded", "operator": {"mode": "device_plugin"}},
    {"cluster": "embedded", "operator": {"toolkit_version": "1.17.8", "kernel_modules": "open"}},
    {"cluster": "aws", "operator": {"mode": "device_plugin"}, "pools": [G4DN]},
    {"cluster": "aws", "operator": {"version": "v25.3.1", "cdi": False}},
    {"cluster": "hosts", "operator": {"version": "v25.3.1"}},
]  # fmt: skip


@pytest.mark.parametrize("row", FINE, ids=[str(index) for index in range(len(FINE))])
def test_what_is_fine_means_the_same_once_it_is_resolved(row: dict[str, Any]) -> None:
    env = parse(environment(row))
    assert parse(env.resolved()).resolved() == env.resolved()
