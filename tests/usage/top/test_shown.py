"""What is shown: pods by GPU as a tree, faulty or cordoned nodes, filters, notes and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.reports import top
from gpuform.usage.cluster_objects import Objects
from gpuform.usage.prometheus import Nowhere, Prometheus
from gpuform.usage.top.measured import Measured
from gpuform.usage.top.read import NOTHING_YET, measure, view
from gpuform.usage.top.view import PodUse
from tests.usage.top.played import Played, device, node, pod, series, slice_of, whole
from tests.usage.top.seen import ENV, GROUPS, LAYOUT, SHARED, one_node, seen, text

pytestmark = pytest.mark.unit


def test_the_tree() -> None:
    played = Played(
        [
            *device("n0", 0, 0.8, 6, 15),
            series("gpuform:gpu:power_watts", 61.6, node="n0", gpu="0"),
        ]
    )
    lines = [line.rstrip() for line in text(seen(played, *SHARED, node("n2", "whole", gpus=2))).splitlines()]
    assert lines == [
        "node, GPU, slice, pod           requested            used          GPU memory       power",
        "n0 (t4, g2.5xlarge)             0.5 of 1 GPU         0.8 of 1 GPU",
        "└─ GPU 0 Tesla-T4, 4 shares     0.5                  80 %          6.0 of 15.0 GiB  62 W",
        "   ├─ a/one                     0.25 (1 gpu.shared)  ~0.4",
        "   └─ b/two                     0.25 (1 gpu.shared)  ~0.4",
        "n2 (whole, g2.5xlarge)          0 of 2 GPUs          not measured",
        "├─ GPU 0 NVIDIA-A100-PCIE-40GB  free                 not measured",
        "└─ GPU 1 NVIDIA-A100-PCIE-40GB  free                 not measured",
    ]


def test_a_gpu_that_is_lost_is_still_the_nodes_and_says_what_is_wrong() -> None:
    lost = {"node": "n2", "gpu": "1", "UUID": "GPU-1", "class": "replace"}
    played = Played(
        [
            *device("n2", 0, 0.5, 1, 40),
            series("gpuform:fault:active", 1, **lost, reason="gpu_lost"),
            series("gpuform:fault:active", 1, **lost, reason="xid", xid="79"),
        ]
    )
    for there in (node("n2", "whole"), node("n2", "whole", gpus=2)):
        found = seen(played, there)
        first, second = one_node(found).gpus
        assert first.faults == ()
        assert sorted(map(str, second.faults)) == ["XID 79 (replace)", "gpu lost (replace)"]
        assert not second.use.measured
        line = next(line for line in text(found).splitlines() if "GPU 1" in line)
        assert "(replace)" in line
        assert "unhealthy" in line
        assert "free" not in line
    assert {"reason": "gpu_lost", "class": "replace", "xid": ""} in found.to_json()["nodes"][0]["gpus"][1][
        "faults"
    ]


def test_without_prometheus_only_requests_are_shown_and_that_is_said() -> None:
    why = Failure("Prometheus", "does not answer", "look")
    found = view(ENV, Objects(tuple(SHARED[:1]), tuple(SHARED[1:])), *measure(Prometheus(Nowhere(why), "")))
    assert text(found).splitlines()[0].split() == ["node,", "GPU,", "slice,", "pod", "requested"]
    assert top.notes(found) == ["requested only: Prometheus: does not answer; look"]
    assert found.to_json()["prometheus"] == {"answers": False, "why": "Prometheus: does not answer; look"}


def test_a_prometheus_without_gpus_says_so() -> None:
    assert measure(Prometheus(Played(), "")) == (Measured(), NOTHING_YET)


@pytest.mark.parametrize(
    ("asked", "nodes", "pods"),
    [
        ((None, None, None), ["n0", "n2"], ["one", "two", "big"]),
        (("a", None, None), ["n0", "n2"], ["one", "big"]),
        (("b", None, None), ["n0"], ["two"]),
        ((None, "whole", None), ["n2"], ["big"]),
        ((None, None, "n0"), ["n0"], ["one", "two"]),
        (("b", "whole", None), [], []),
    ],
)
def test_filters(asked: tuple[str | None, str | None, str | None], nodes: list[str], pods: list[str]) -> None:
    big = pod("a/big", "n2", (whole("n2", 1),), gpu=1)
    found = seen(Played(), *SHARED, node("n2", "whole", gpus=2), big).only(*asked)
    assert [one.name for one in found.nodes] == nodes
    assert [one.name for each in found.nodes for one in each.everyone] == pods
    if asked[0]:
        assert all(list(gpu.everyone) for each in found.nodes for gpu in each.gpus)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"taints": [{"key": "nvidia.com/gpu", "value": "true"}]}, ""),
        ({"unschedulable": True}, "cordoned"),
        ({"taints": [{"key": "gpuform.io/gpu-unhealthy", "value": "replace"}]}, "out of use: replace"),
        ({"taints": [{"key": "gpuform.io/gpu-not-ready"}]}, "its GPUs are not proven yet"),
    ],
)
def test_free_gpus_of_a_node_that_takes_no_pods_are_not_offered_without_a_word(
    spec: dict[str, Any], said: str
) -> None:
    played = {**node("w", "whole", gpus=4), "spec": spec}
    found = view(ENV, Objects((played,), ()), *measure(Prometheus(Played([]), "remedy")))
    assert one_node(found).closed == said
    assert said in text(found)
    assert found.to_json()["nodes"][0]["closed"] == said


def test_json_has_the_documented_keys() -> None:
    found = seen(Played(device("n0", 0, 0.8, 6, 15)), *SHARED).to_json()
    assert set(found) == {"simulated", "prometheus", "growing", "nodes"}
    assert found["growing"] == []
    (only,) = found["nodes"]
    assert set(only) == {
        "name",
        "pool",
        "machine",
        "ready",
        "closed",
        "requested_gpus",
        "busy_gpus",
        "gpus",
        "pods",
    }
    (gpu,) = only["gpus"]
    assert gpu == {
        "index": 0,
        "uuid": whole("n0", 0),
        "model": "Tesla-T4",
        "shares": 4,
        "requested_gpus": 0.5,
        "util": 0.8,
        "memory_used_bytes": 6 * 2**30,
        "memory_total_bytes": 15 * 2**30,
        "power_watts": None,
        "temperature_celsius": None,
        "faults": [],
        "slices": [],
        "pods": [
            {
                "namespace": namespace,
                "name": name,
                "resource": "nvidia.com/gpu.shared",
                "count": 1,
                "attributed": True,
                "requested_gpus": 0.25,
                "used_gpus": 0.4,
            }
            for namespace, name in (("a", "one"), ("b", "two"))
        ],
    }


def test_groups_that_grow_say_how_far() -> None:
    """A group without GPUs is not listed; for the others all their nodes count, shown or not."""
    found = seen(Played([]), node("n1", "mig", 1, LAYOUT), node("n2", "mig", 1, LAYOUT), env=GROUPS)
    mig = {"pool": "mig", "nodes": 2, "min": 1, "max": 4}
    assert found.to_json()["growing"] == [mig, {"pool": "whole", "nodes": 0, "min": 1, "max": 2}]
    assert "pool mig has 2 nodes, and may have 1 to 4" in top.notes(found)
    assert "pool whole has 0 nodes, and may have 1 to 2" in top.notes(found)
    assert found.only(None, "mig", "n1").to_json()["growing"] == [mig]


def test_what_was_used_is_never_said_to_be_nothing_known() -> None:
    assert top.used_by(PodUse("a", "b", "b", "nvidia.com/gpu", 1, 1.0)) == "not measured"


def test_the_documentation_shows_every_key() -> None:
    text = (Path(__file__).parents[3] / "docs/howto/report.md").read_text(encoding="utf-8")
    shown = json.loads(text.partition("```json\n")[2].partition("```")[0])
    fault = series("gpuform:fault:active", 1, node="n1", gpu="0", reason="ecc")
    current = seen(
        Played([*device("n1", 0, 0.5, 1, 2), fault]),
        node("n1", "mig", 1, LAYOUT),
        pod("a/b", "n1", (slice_of("n1", 0, "3g.20gb", 4),), mig_3g_20gb=1),
        env=GROUPS,
    ).to_json()
    assert keys(shown) == keys(current)


def keys(value: Any) -> Any:
    """Its structure; of a list, that of the largest entry."""
    if isinstance(value, dict):
        return {key: keys(one) for key, one in value.items()}
    if isinstance(value, list):
        return max((keys(one) for one in value), key=lambda one: len(str(one)), default=None)
    return None
