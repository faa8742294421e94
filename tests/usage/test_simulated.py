"""The product reads simulated nodes by names of its own, which are the simulator's."""

from __future__ import annotations

import pytest

from gpuform.usage import nodes
from infra.model.base import labels
from lab.simulator import device_plugin, keys

pytestmark = pytest.mark.unit


def test_every_key_is_one_of_the_simulators() -> None:
    ours = {value for name, value in vars(labels).items() if name.startswith("SIM_")}
    theirs = {value for value in vars(keys).values() if isinstance(value, str)}
    sizes = {f"simulator.gpuform.io/{size}" for size in ("cpu", "memory", "pods", "hugepages-2Mi")}
    assert sizes < ours, "kwok's stages read these"
    assert ours - theirs == sizes


def test_ids_are_those_of_the_simulated_device_manager() -> None:
    assert nodes.gpu_id("uid", 3) == device_plugin.gpu_id("uid", 3)
    assert nodes.mig_id("uid", 3, "1g.5gb", 2) == device_plugin.mig_id("uid", 3, "1g.5gb", 2)
