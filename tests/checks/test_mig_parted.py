"""Every MIG configuration, read by NVIDIA's own ``nvidia-mig-parted assert --valid-config``.

It checks names and keys, but not geometry, as the last test shows: test_geometry checks that otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.model.gpu import GPUS, Gpu
from infra.plan.sharing import to_yaml
from lab.toolchain import Toolchain
from tests.checks import everything
from tests.checks.judges import asserted
from tests.mig_layouts import layouts

pytestmark = pytest.mark.tools

GOOD = {"devices": "all", "mig-enabled": True, "mig-devices": {"3g.20gb": 1, "2g.10gb": 2}}


@pytest.fixture(scope="module")
def mig_parted(toolchain: Toolchain) -> Path:
    return toolchain.path("nvidia-mig-parted")


def spec(**entry: object) -> str:
    return to_yaml({"version": "v1", "mig-configs": {"cut": [entry]}})


def rendered() -> set[str]:
    found = (everything.config_map(name, "nvidia-mig-config") for name in everything.environments())
    return {text for entries in found for _, text in entries}


def test_every_configuration_of_every_environment_is_valid(mig_parted: Path) -> None:
    texts = rendered()
    assert len(texts) >= 8
    for text in texts:
        for name in yaml.safe_load(text)["mig-configs"]:
            found = asserted(mig_parted, text, name)
            assert (found.returncode, found.stdout) == (0, "Selected MIG configuration is valid\n"), found
    assert any("device-filter" in text for text in texts)


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS.values() if gpu.geometry], ids=lambda gpu: gpu.name)
def test_it_knows_every_profile_of_the_catalogue(mig_parted: Path, gpu: Gpu) -> None:
    """One file with every possible layout of the GPU: all of it is parsed, whichever name is requested."""
    assert gpu.geometry is not None
    entries = [{**GOOD, "mig-devices": dict(pairs)} for pairs in layouts(gpu.geometry)]
    configs = {f"layout-{index}": [entry] for index, entry in enumerate(entries)}
    text = to_yaml({"version": "v1", "mig-configs": configs})
    found = asserted(mig_parted, text, "layout-0")
    assert found.returncode == 0, found.stderr
    assert len(configs) >= (14 if gpu.geometry.compute > 2 else 3)


REFUSED = {
    "no profile": (spec(**{**GOOD, "mig-devices": {"9z.foo": 1}}), "invalid format for '9z.foo'"),
    "a key misspelled": (spec(**{**GOOD, "mig-devises": {}}), "unexpected field: mig-devises"),
    "slices without MIG": (spec(**{**GOOD, "mig-enabled": False}), "'mig-enabled' is false"),
    "another name": (to_yaml({"version": "v1", "mig-configs": {"uncut": [GOOD]}}), "not present: cut"),
    "no version": (to_yaml({"mig-configs": {"cut": [GOOD]}}), "missing"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused(mig_parted: Path, text: str, said: str) -> None:
    found = asserted(mig_parted, text, "cut")
    assert found.returncode == 1
    assert said in found.stderr


@pytest.mark.parametrize("layout", [{"3g.20gb": 9}, {"3g.20gb": 2, "1g.5gb": 1}, {"5g.20gb": 1}])
def test_it_is_no_judge_of_geometry(mig_parted: Path, layout: dict[str, int]) -> None:
    """No A100 can have these; if this test fails, the other geometry checks are no longer needed."""
    text = spec(**{**GOOD, "mig-devices": layout})
    assert asserted(mig_parted, text, "cut").returncode == 0
