"""Pull requests on the stack aws-dev, offline: the base is played with its nodes, and comments are golden.

GPUFORM_UPDATE_GOLDEN=1 writes the comments again; review the diff before committing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.stack.preview.run import Played
from tests.journey.played_requests import Request, based, replaced, reviewed, short_and_without_paths

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

GOLDEN = Path(__file__).parent / "pull_requests_aws"
STACK = "aws-dev"
BUDGET = "\n    cost: {budget_usd_per_month: 20000}\n"
P5 = """\
      - name: h100
        machine: p5.48xlarge
        elastic: {max: {nvidia.com/gpu: 16}}
        class: training
        taints: [{key: work, value: training}]

    workloads:
"""

REQUESTS = (
    Request("no-change", replaced("# A cheap cluster", "# A small cluster")),
    Request("p5-pool", replaced("    workloads:\n", P5), blocked=True),
    Request("cluster-replaced", replaced("name: aws-dev\n", "name: aws-lab\n"), blocked=True),
    Request(
        "cluster-acknowledged",
        replaced("name: aws-dev\n", "name: aws-lab\n"),
        acknowledged=("aws-dev",),
    ),
    Request("another-network", replaced("cidr: 10.20.0.0/16", "cidr: 10.30.0.0/16"), blocked=True),
    Request("ami-pin", replaced("al2023@v20260801", "al2023@v20260901", count=2)),
    Request("replicas", replaced("kind: time_slicing, replicas: 3,", "kind: time_slicing, replicas: 4,")),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with based(tmp_path_factory.mktemp("base"), STACK, BUDGET) as made:
        yield made


def test_the_base_is_read_live(base: Played) -> None:
    """The scheduler has placed the pods, on nodes that the node group and Karpenter would have made."""
    assert base.world.live
    assert base.world.nodes["system"] == ("system-0", "system-1")
    assert base.world.nodes["g4dn-shared"] == ("g4dn-shared-0", "g4dn-shared-1")
    pods = base.world.on("g4dn-shared")
    assert {pod.owner for pod in pods} == {"Deployment/tensorflow"}
    assert len(pods) == 4
    assert {pod.node for pod in pods} == {"g4dn-shared-0", "g4dn-shared-1"}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_the_comment_is_what_was_reviewed(base: Played, request_: Request, tmp_path: Path) -> None:
    reviewed(base, request_, tmp_path, STACK, GOLDEN, BUDGET)


def test_the_comments_are_short_and_name_no_machine() -> None:
    short_and_without_paths(GOLDEN, REQUESTS)
