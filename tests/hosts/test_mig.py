from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from testinfra.host import Host

from tests.hosts import nvidia_smi
from tests.hosts.expected import Expected
from tests.hosts.findings import expect
from tests.hosts.test_driver import ask

STATE = "nvidia.com/mig.config.state"


def test_mig(driver: Host, expected: Expected) -> None:
    """Every GPU has exactly the planned slices; without planned slices, MIG is off."""
    if expected.mig is None:
        pytest.skip("its slices are the operator's, and its plan is not in the inventory")
    planned = any(expected.mig.values())
    listed = nvidia_smi.parse_list(ask(driver, "nvidia-smi -L", expected))
    mend = (
        f"end what runs on the GPU, then run {expected.apply}: a GPU in use is not cut again"
        if planned
        else "end what runs on the GPU, then run `nvidia-smi -mig 0`"
    )
    for gpu in listed:
        has, wants = dict(gpu.slices), expected.slices(gpu.index) or {}
        expect(has == wants, f"GPU {gpu.index} has {_words(has)}; {_words(wants)} planned", mend)
    if not planned:
        queried = nvidia_smi.parse_query(ask(driver, nvidia_smi.QUERY_COMMAND, expected))
        on = ", ".join(str(gpu.index) for gpu in queried if gpu.mig_mode)
        expect(not on, f"MIG mode is on, without slices, on GPU {on}; no program can use it", mend)


def test_mig_state(node: dict[str, Any], expected: Expected) -> None:
    state = node["metadata"].get("labels", {}).get(STATE)
    if state is None:
        pytest.skip("no MIG manager has acted on the node")
    expect(
        state == "success",
        f"the node's {STATE} is {state!r}",
        "see the log of nvidia-mig-manager on this node; a GPU in use is not cut again",
    )


def _words(slices: Mapping[str, int]) -> str:
    return ", ".join(f"{count}x {profile}" for profile, count in sorted(slices.items())) or "no slices"
