"""NVIDIA's own names of MIG configurations mean what its shipped file says."""

from __future__ import annotations

import pytest

from infra.config import parse
from infra.model.gpu import GPUS
from infra.model.mig_names import config_name, standard
from infra.plan import gpu_operator, sharing
from tests.external import mig_layouts
from tests.mig_layouts import GEOMETRIES

pytestmark = pytest.mark.unit


def test_standard_names_mean_what_nvidia_ships() -> None:
    shipped = mig_layouts()
    compared = 0
    for name in GEOMETRIES:
        gpu = GPUS[name]
        for config, entries in shipped.items():
            for entry in entries:
                filters = entry.get("device-filter", [])
                # An entry without a filter is for the GPUs that have its profiles.
                concerns = gpu.device_filter in filters if filters else standard(gpu, config) is not None
                if concerns and entry["mig-enabled"] and entry["mig-devices"]:
                    assert standard(gpu, config) == entry["mig-devices"], (name, config)
                    compared += 1
    assert compared > 60


def test_a_name_of_another_gpu_means_nothing() -> None:
    assert standard(GPUS["A30"], "all-1g.5gb") is None
    assert standard(GPUS["A30"], "all-disabled") is None
    assert standard(GPUS["T4"], "all-balanced") is None
    assert standard(GPUS["RTX-PRO-4500"], "all-balanced") is None
    assert standard(GPUS["A30"], "all-balanced") == {"1g.6gb": 2, "2g.12gb": 1}


def test_no_layout_is_asked_of_nodes_that_may_have_no_mig() -> None:
    """An update waited ten minutes for a MIG manager that does not run on a V100."""
    gpu = {"models": ["V100-SXM2-32GB", "A100-40GB"], "count": 8}
    env = parse(
        {"name": "e", "cluster": {"kind": "embedded"}, "pools": [{"name": "p", "nodes": 1, "gpu": gpu}]}
    )
    assert config_name(env.pools[0]) is None
    assert sharing.mig_parted_config_map(env) is not None
    assert gpu_operator.values(env)["migManager"]["config"]["default"] == "all-disabled"
