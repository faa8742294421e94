"""What gpu_operator accepts; bad_operator.yaml has what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from tests.config.tables import operated

pytestmark = pytest.mark.unit

G4DN = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}
ALL = ["CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266"]
FINE: list[dict[str, Any]] = [
    {"operator": {"version": "v25.3.1"}},
    {"operator": {"version": "v28.12.0"}},
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
    env = parse(operated(row))
    assert parse(env.resolved()).resolved() == env.resolved()
