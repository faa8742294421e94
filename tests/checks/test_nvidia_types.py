"""Every configuration of the device plugin and of the MIG manager goes through NVIDIA's own types and back.

The parsers drop unknown keys silently, so their output is compared with ours.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from lab.toolchain import Toolchain
from tests.checks import everything
from tests.checks.judges import Lines

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def types(toolchain: Toolchain) -> Iterator[Lines]:
    with Lines(toolchain.path("nvidia-config")) as answers:
        yield answers


def rendered(config_map: str) -> set[str]:
    found = (everything.config_map(name, config_map) for name in everything.environments())
    return {text for entries in found for _, text in entries}


def test_no_key_of_the_device_plugin_is_lost(types: Lines) -> None:
    texts = rendered("nvidia-time-slicing-config")
    assert len(texts) >= 6
    strategies = set()
    for text in texts:
        said = types.ask(kind="device-plugin", yaml=text)
        assert (said["error"], said["lost"]) == (None, []), text
        strategies.add(said["strategy"])
        flags = yaml.safe_load(text)["flags"]
        assert said["config"]["flags"]["migStrategy"] == flags["migStrategy"]
    assert strategies == {"none", "time-slicing", "mps"}


def test_no_key_of_mig_parted_is_lost(types: Lines) -> None:
    texts = rendered("nvidia-mig-config")
    assert len(texts) >= 8
    for text in texts:
        said = types.ask(kind="mig-parted", yaml=text)
        assert (said["error"], said["lost"]) == (None, []), text
        assert said["config"]["mig-configs"].keys() == yaml.safe_load(text)["mig-configs"].keys()


SLICE = """\
version: v1
flags: {migStrategy: mixed}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


@pytest.mark.parametrize(
    ("good", "bad", "said", "lost"),
    [
        ("renameByDefault", "renameByDefualt", None, ["sharing.timeSlicing.renameByDefualt"]),
        ("migStrategy", "migStrategie", None, ["flags.migStrategie"]),
        ("replicas: 4", "replicas: 1", "number of replicas must be >= 2", []),
        ("version: v1", "version: v2", "unknown version: v2", []),
    ],
)
def test_what_is_wrong_is_lost_or_refused(
    types: Lines, good: str, bad: str, said: str | None, lost: list[str]
) -> None:
    assert types.ask(kind="device-plugin", yaml=SLICE)["lost"] == []
    found = types.ask(kind="device-plugin", yaml=SLICE.replace(good, bad))
    assert found["lost"] == lost
    assert said is None if found["error"] is None else said in found["error"]
