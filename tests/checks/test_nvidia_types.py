"""Every configuration of the device plugin and of the MIG manager goes through NVIDIA's own types and back.

The parsers drop unknown keys silently, so their output is compared with ours. MIG configurations are also
read by ``nvidia-mig-parted assert --valid-config``: it checks names and keys, but not geometry, as the last
test shows; test_geometry checks that otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.model.gpu.models import GPUS, Gpu
from infra.plan.sharing import to_yaml
from tests.build.mig_layouts import layouts
from tests.checks import everything
from tests.checks.judges import JsonLines, check_config

pytestmark = pytest.mark.tools


def rendered(config_map: str) -> set[str]:
    found = (everything.config_map(name, config_map) for name in everything.environments())
    return {text for entries in found for _, text in entries}


def test_no_key_of_the_device_plugin_is_lost(types: JsonLines) -> None:
    texts = rendered("nvidia-time-slicing-config")
    assert len(texts) >= 6
    strategies = set()
    for text in texts:
        answer = types.ask(kind="device-plugin", yaml=text)
        assert (answer["error"], answer["lost"]) == (None, []), text
        strategies.add(answer["strategy"])
        flags = yaml.safe_load(text)["flags"]
        assert answer["config"]["flags"]["migStrategy"] == flags["migStrategy"]
    assert strategies == {"none", "time-slicing", "mps"}


def test_no_key_of_mig_parted_is_lost(types: JsonLines) -> None:
    texts = rendered("nvidia-mig-config")
    assert len(texts) >= 8
    for text in texts:
        answer = types.ask(kind="mig-parted", yaml=text)
        assert (answer["error"], answer["lost"]) == (None, []), text
        assert answer["config"]["mig-configs"].keys() == yaml.safe_load(text)["mig-configs"].keys()


SLICE = """\
version: v1
flags: {migStrategy: mixed}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


@pytest.mark.parametrize(
    ("good", "bad", "expected", "lost"),
    [
        ("renameByDefault", "renameByDefualt", None, ["sharing.timeSlicing.renameByDefualt"]),
        ("migStrategy", "migStrategie", None, ["flags.migStrategie"]),
        ("replicas: 4", "replicas: 1", "number of replicas must be >= 2", []),
        ("version: v1", "version: v2", "unknown version: v2", []),
    ],
)
def test_what_is_wrong_is_lost_or_refused(
    types: JsonLines, good: str, bad: str, expected: str | None, lost: list[str]
) -> None:
    assert types.ask(kind="device-plugin", yaml=SLICE)["lost"] == []
    found = types.ask(kind="device-plugin", yaml=SLICE.replace(good, bad))
    assert found["lost"] == lost
    assert expected is None if found["error"] is None else expected in found["error"]


GOOD = {"devices": "all", "mig-enabled": True, "mig-devices": {"3g.20gb": 1, "2g.10gb": 2}}


def spec(**entry: object) -> str:
    return to_yaml({"version": "v1", "mig-configs": {"cut": [entry]}})


def test_every_configuration_of_every_environment_is_valid(mig_parted: Path) -> None:
    texts = rendered("nvidia-mig-config")
    assert len(texts) >= 8
    for text in texts:
        for name in yaml.safe_load(text)["mig-configs"]:
            found = check_config(mig_parted, text, name)
            assert (found.returncode, found.stdout) == (0, "Selected MIG configuration is valid\n"), found
    assert any("device-filter" in text for text in texts)


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS.values() if gpu.geometry], ids=lambda gpu: gpu.name)
def test_it_knows_every_profile_of_the_catalogue(mig_parted: Path, gpu: Gpu) -> None:
    """One file with every possible layout of the GPU: all of it is parsed, whichever name is requested."""
    assert gpu.geometry is not None
    entries = [{**GOOD, "mig-devices": dict(pairs)} for pairs in layouts(gpu.geometry)]
    configs = {f"layout-{index}": [entry] for index, entry in enumerate(entries)}
    text = to_yaml({"version": "v1", "mig-configs": configs})
    found = check_config(mig_parted, text, "layout-0")
    assert found.returncode == 0, found.stderr
    assert len(configs) >= (14 if gpu.geometry.compute > 2 else 3)


REFUSED = {
    "no profile": (spec(**{**GOOD, "mig-devices": {"9z.foo": 1}}), "invalid format for '9z.foo'"),
    "a key misspelled": (spec(**{**GOOD, "mig-devises": {}}), "unexpected field: mig-devises"),
    "slices without MIG": (spec(**{**GOOD, "mig-enabled": False}), "'mig-enabled' is false"),
    "another name": (to_yaml({"version": "v1", "mig-configs": {"uncut": [GOOD]}}), "not present: cut"),
    "no version": (to_yaml({"mig-configs": {"cut": [GOOD]}}), "missing"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused(mig_parted: Path, text: str, expected: str) -> None:
    found = check_config(mig_parted, text, "cut")
    assert found.returncode == 1
    assert expected in found.stderr


@pytest.mark.parametrize("layout", [{"3g.20gb": 9}, {"3g.20gb": 2, "1g.5gb": 1}, {"5g.20gb": 1}])
def test_it_is_no_judge_of_geometry(mig_parted: Path, layout: dict[str, int]) -> None:
    """No A100 can have these; if this test fails, the other geometry checks are no longer needed."""
    text = spec(**{**GOOD, "mig-devices": layout})
    assert check_config(mig_parted, text, "cut").returncode == 0
