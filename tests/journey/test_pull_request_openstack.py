"""Pull requests on the stack openstack-dev, offline: the base is played with its groups' nodes.

GPUFORM_UPDATE_GOLDEN=1 writes the comments again; review the diff before committing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.stack.preview.run import Played
from tests.journey.played_requests import Request, based, replaced, reviewed, short_and_without_paths

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

GOLDEN = Path(__file__).parent / "pull_requests_openstack"
STACK = "openstack-dev"
PRICES = "\n    cost: {prices: {g2.5xlarge: 0.9, g4.p1.40g: 2.5, m2.medium: 0.1}}\n"


LABELLED = "      keypair: gpu-admins\n      labels: {boot_volume_size: 80}\n"


def resized(text: str) -> str:
    """One T4 node fewer, a higher maximum for the runners, and another flavor for the V100S."""
    text = replaced("machine: g2.5xlarge\n        nodes: 2", "machine: g2.5xlarge\n        nodes: 1")(text)
    text = replaced("max: {nodes: 3}", "max: {nodes: 6}")(text)
    larger = "{name: gpu-v100s, machine: g3.4xlarge, nodes: 1, openstack: {allow_replace: true}}"
    return replaced("{name: gpu-v100s, machine: g3.xlarge, nodes: 1}", larger)(text)


REQUESTS = (
    Request("groups-resized", resized),
    Request("cluster-label", replaced("      keypair: gpu-admins\n", LABELLED), blocked=True),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with based(tmp_path_factory.mktemp("base"), STACK, PRICES) as made:
        yield made


def test_the_base_is_read_live(base: Played) -> None:
    """Groups have grown for the workloads; the program has labelled Magnum's nodes."""
    assert base.world.live
    assert {pool: len(names) for pool, names in base.world.nodes.items()} == {
        "default-worker": 1,
        "gpu-a100": 1,
        "gpu-ci": 2,
        "gpu-t4": 2,
        "gpu-v100s": 1,
    }
    assert {pod.owner for pod in base.world.on("gpu-ci")} == {"Deployment/runner"}
    assert {pod.namespace for pod in base.world.on("gpu-a100")} == {"neighbours-mig"}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_the_comment_is_what_was_reviewed(base: Played, request_: Request, tmp_path: Path) -> None:
    reviewed(base, request_, tmp_path, STACK, GOLDEN, PRICES)


def test_the_comments_are_short_and_name_no_machine() -> None:
    short_and_without_paths(GOLDEN, REQUESTS)
