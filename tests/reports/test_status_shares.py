from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage.claims import gather
from gpuform.usage.status import summarise
from infra.config import parse
from tests.reports.live import node, pod

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("machine", "sharing", "detail"),
    [
        ("g2.5xlarge", {"kind": "mps", "replicas": 4}, "4 per GPU, 3840 MiB each"),
        ("g4.p1.40g", {"kind": "mig", "layout": "all-1g.5gb"}, "7x 1g.5gb"),
        (
            "g4.p4.40g",
            {"kind": "mig", "layout": {"1g.5gb": 7}, "devices": [2, 0], "share": {"replicas": 3}},
            "7x 1g.5gb on GPU 0, 2; 3 per slice",
        ),
    ],
)
def test_how_a_pool_is_shared_is_said_in_a_few_words(
    machine: str, sharing: dict[str, Any], detail: str
) -> None:
    pool = {"name": "p", "machine": machine, "nodes": 1, "sharing": sharing}
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool]})
    assert summarise(env, [], []).pools[0].detail == detail


def test_claimed_gpus_are_counted_as_devices_and_not_as_a_resource() -> None:
    cluster = {
        "kind": "aws",
        "region": "us-west-2",
        "version": "1.34",
        "network": {"cidr": "10.0.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
        "images": {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"},
    }
    pool = {"name": "l4", "machine": "g6.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}}
    env = parse({"name": "test", "cluster": cluster, "pools": [pool]})
    whole = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    sick = {**whole, "taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]}
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "l4-0"}
    slices = [
        {"spec": {**spec, "pool": {"name": "l4-0", "generation": 1}, "devices": [whole] * 8}},
        {
            "spec": {
                **spec,
                "pool": {"name": "l4-0", "generation": 2},
                "devices": [*[whole] * 4, sick, channel],
            }
        },
    ]
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 3}}]}
    claims = gather(
        slices, [{"metadata": {"namespace": "default", "name": "a-gpu-x"}, "spec": {"devices": asked}}]
    )
    running = {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
    current = summarise(env, [node("l4-0", "l4")], [pod("a", "l4-0", running)], claims)
    (found,) = current.pools
    assert (found.planned, found.detail) == ({"gpu.nvidia.com": 4}, "whole GPUs by claim")
    assert (found.nodes[0].allocatable, found.nodes[0].used) == ({"gpu.nvidia.com": 4}, {"gpu.nvidia.com": 3})
    assert found.settled
    assert current.pods[0].requests == {"gpu.nvidia.com": 3}
    assert not summarise(env, [node("l4-0", "l4")], []).pools[0].settled, "no driver has published anything"


def test_slices_to_claim_are_counted_by_their_class() -> None:
    layout = {"3g.20gb": 1, "2g.10gb": 2}
    pool = {"name": "a", "machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "dra", "layout": layout}}
    env = parse({"name": "test", "cluster": {"kind": "embedded"}, "pools": [pool]})
    one = {"name": "gpu-0-mig-3g20gb-9-4", "attributes": {"type": {"string": "mig"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a-0", "pool": {"name": "a-0", "generation": 1}}
    (found,) = summarise(
        env, [node("a-0", "a")], [], gather([{"spec": {**spec, "devices": [one] * 3}}], [])
    ).pools
    assert found.planned == found.nodes[0].allocatable == {"mig.nvidia.com": 3}
    assert (found.detail, found.settled) == ("2x 2g.10gb, 1x 3g.20gb by claim", True)
