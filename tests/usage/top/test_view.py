"""Which pod has which GPU and its use, with and without Prometheus; the tree, filters, notes and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.reports import top
from gpuform.usage import nodes as live_nodes
from gpuform.usage.prometheus import Prometheus, Unavailable
from gpuform.usage.top.measured import Metrics
from gpuform.usage.top.read import NOTHING_YET, read_metrics
from gpuform.usage.top.view import PodUse
from infra.config import parse
from infra.model.base import labels
from infra.model.pool import allocatable
from lab.simulator import device_plugin
from lab.simulator import keys as simulated
from tests.build.environments import on
from tests.usage.top.played import (
    ENV,
    GROUPS,
    LAYOUT,
    SHARED,
    Played,
    gpu_series,
    gpu_uuid,
    mig_uuid,
    node,
    only_node,
    pod,
    series,
    shown,
    usage_rows,
    view_of,
)

pytestmark = pytest.mark.unit


def test_shares_of_a_gpu_have_their_recorded_part() -> None:
    recorded = [
        series("gpuform:pod:gpus_used", 0.5, namespace="a", pod="one", node="n0"),
        series("gpuform:pod:gpus_used", 0.3, namespace="b", pod="two", node="n0"),
        series("gpuform:gpu:power_watts", 61.6, node="n0", gpu="0"),
    ]
    (gpu,) = only_node(view_of(Played([*gpu_series("n0", 0, 0.8, 6, 15), *recorded]), *SHARED)).gpus
    assert (gpu.shares, gpu.use.util, gpu.use.power_watts, gpu.requested) == (4, 0.8, 61.6, 0.5)
    assert usage_rows(gpu.pods) == [("one", 0.25, 0.5, True), ("two", 0.25, 0.3, True)]


def test_queues_change_nothing_of_what_is_shown() -> None:
    """A pod that waits in a queue is on no node, and has no GPU."""
    played = Played(gpu_series("n0", 0, 0.8, 6, 15))
    teams = [{"name": "lab", "namespaces": ["a"], "quota": {"t4": 4}}]
    queued = parse({**ENV.resolved(), "queues": {"teams": teams}})
    found = view_of(played, *SHARED, pod("a/waits", None, phase="Pending", gpu_shared=1), env=queued)
    assert found == view_of(played, *SHARED)


def test_without_the_recorded_series_the_part_comes_from_the_gpu_itself() -> None:
    (gpu,) = only_node(view_of(Played(gpu_series("n0", 0, 0.8, 6, 15)), *SHARED)).gpus
    assert usage_rows(gpu.pods) == [("one", 0.25, 0.4, True), ("two", 0.25, 0.4, True)]


def test_a_gpu_of_unknown_utilisation_makes_the_nodes_use_unknown_and_a_lost_one_does_not() -> None:
    """Its part of the node counted as idle, and as cost that is not used."""
    known, unknown = gpu_series("n0", 0, 0.8, 6, 15), gpu_series("n0", 1, 0.0, 6, 15)[1:]
    lost = [series("gpuform:fault:active", 1, node="n0", gpu="1", reason="gpu_lost")]
    assert only_node(view_of(Played([*known, *unknown]), node("n0", "t4", gpus=2))).busy is None
    assert only_node(view_of(Played([*known, *lost]), node("n0", "t4", gpus=2))).busy == 0.8
    one, two = (gpu_series("n1", 0, 0.5, 4, 20, GPU_I_ID=n, GPU_I_PROFILE="3g.20gb") for n in ("1", "5"))
    assert only_node(view_of(Played([*one, *two[1:]]), node("n1", "mig"))).busy is None


def test_a_pod_alone_on_a_shared_gpu_uses_what_is_measured() -> None:
    (gpu,) = only_node(view_of(Played(gpu_series("n0", 0, 0.8, 6, 15)), *SHARED[:2])).gpus
    assert usage_rows(gpu.pods) == [("one", 0.25, 0.8, False)]


@pytest.mark.parametrize("named", [True, False], ids=["DCGM names the pods", "it names none"])
def test_slices_have_their_own_numbers(named: bool) -> None:
    """The three pods' slices are matched by pod name, else in the order of the instances."""
    played = Played()
    for instance, profile, util, name in (
        ("3", "2g.10gb", 0.2, "notebook"),
        ("5", "2g.10gb", 0.1, "simulation"),
        ("2", "3g.20gb", 0.9, "inference"),
    ):
        tags = {"GPU_I_ID": instance, "GPU_I_PROFILE": profile, "modelName": "NVIDIA A100-PCIE-40GB"}
        played.series += gpu_series("n1", 0, util, 4, 10, **tags)
        if named:
            raw = {"node": "n1", "gpu": "0", "GPU_I_ID": instance, "namespace": "mig", "pod": name}
            played.series.append(series("DCGM_FI_DEV_FB_USED", 4096, **raw))
    played.series.append(series("gpuform:gpu:power_watts", 200, node="n1", gpu="0"))
    found = view_of(
        played,
        node("n1", "mig", 1, LAYOUT, nvidia_com__gpu_product="NVIDIA-A100-PCIE-40GB"),
        pod("mig/simulation", "n1", (mig_uuid("n1", 0, "2g.10gb", 0),), mig_2g_10gb=1),
        pod("mig/notebook", "n1", (mig_uuid("n1", 0, "2g.10gb", 2),), mig_2g_10gb=1),
        pod("mig/inference", "n1", (mig_uuid("n1", 0, "3g.20gb", 4),), mig_3g_20gb=1),
    )
    (gpu,) = only_node(found).gpus
    assert (gpu.compute, gpu.memory, gpu.use.power_watts) == (7, 8, 200)
    assert gpu.use.util == pytest.approx((0.2 * 2 + 0.1 * 2 + 0.9 * 3) / 7)
    assert gpu.use.memory_used == 12 * 2**30
    assert [(one.profile, one.start) for one in gpu.slices] == [
        ("2g.10gb", 0),
        ("2g.10gb", 2),
        ("3g.20gb", 4),
    ]
    assert {one.use.power_watts for one in gpu.slices} == {None}
    assert [one.use.util for one in gpu.slices] == ([0.1, 0.2, 0.9] if named else [0.2, 0.1, 0.9])
    assert usage_rows(gpu.slices[2].pods) == [("inference", 0.429, 0.386, False)]


@pytest.mark.parametrize("simulated", [True, False], ids=["simulated", "DCGM's"])
def test_a_gpu_is_what_its_slices_are_together(simulated: bool) -> None:
    """A layout's unused part counts for the slices, as in the recorded series and the price."""
    half = {"name": "half", "machine": "g4.p1.40g", "sharing": {"kind": "mig", "layout": {"3g.20gb": 2}}}
    env = on("embedded", half, gpu_operator={"mig_strategy": "mixed"})
    tags = {"GPU_I_PROFILE": "3g.20gb", "modelName": "NVIDIA A100-PCIE-40GB"}
    one, two = (gpu_series("n1", 0, util, 4, 20, GPU_I_ID=n, **tags) for n, util in (("1", 1), ("2", 0.5)))
    played = Played([*one, *two])
    layout = {"0": ["3g.20gb@0", "3g.20gb@4"]}
    label = {"nvidia_com__gpu_product": "NVIDIA-A100-PCIE-40GB"}
    there = node("n1", "half", 1, layout, **label) if simulated else node("n1", "half", **label)
    pods = tuple(pod(f"a/{name}", "n1", mig_3g_20gb=1) for name in ("one", "two"))
    found = only_node(view_of(played, there, *pods, env=env))
    assert (found.requested, found.busy) == (1.0, 0.75)
    assert allocatable.unit_parts(env.pools[0]) == {"nvidia.com/mig-3g.20gb": 0.5}


def test_a_real_node_has_the_devices_and_pods_that_dcgm_knows() -> None:
    played = Played()
    for index, util in enumerate((0.5, 0.0)):
        tags = {"UUID": f"GPU-{index}", "modelName": "NVIDIA A100-PCIE-40GB"}
        played.series += gpu_series("n2", index, util, 10, 40, **tags)
    played.series.append(series("DCGM_FI_DEV_FB_USED", 9, node="n2", gpu="1", namespace="a", pod="one"))
    played.series.append(series("DCGM_FI_DEV_FB_USED", 9, node="n2", gpu="0"))
    pods = (pod("a/one", "n2", gpu=1), pod("a/two", "n2", gpu=1))
    found = only_node(view_of(played, node("n2", "whole"), *pods))
    assert [usage_rows(gpu.pods) for gpu in found.gpus] == [[], [("one", 1.0, 0.0, False)]]
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-0", "GPU-1"]
    assert usage_rows(found.unassigned) == [("two", 1.0, None, False)]


def test_shared_gpus_of_a_real_node_are_told_of_the_node_and_never_as_nothing() -> None:
    """DCGM does not attribute shares: with one GPU the pod's use is known, with two it is the node's."""
    recorded = [series("gpuform:pod:gpus_used", 0.3, namespace="a", pod="one", node="n0")]
    pods = [pod("a/one", "n0", gpu_shared=1)]
    first, second = (gpu_series("n0", index, 0.3, 6, 15) for index in (0, 1))
    single = only_node(view_of(Played([*first, *recorded]), node("n0", "t4"), *pods))
    assert usage_rows(single.gpus[0].pods) == [("one", 0.25, 0.3, False)]
    double = view_of(Played([*first, *second, *recorded]), node("n0", "t4"), *pods)
    assert usage_rows(only_node(double).unassigned) == [("one", 0.25, 0.3, True)]
    assert "~0.3" in shown(double)
    assert top.ATTRIBUTED in top.top_notes(double)


def test_pods_that_have_ended_or_ask_for_no_gpu_are_left_out() -> None:
    found = view_of(
        Played(),
        node("n0", "t4", gpus=1),
        node("c0", "cpu"),
        pod("a/done", "n0", (gpu_uuid("n0", 0, 0),), phase="Succeeded", gpu_shared=1),
        pod("a/none", "n0"),
        pod("a/waits", None, gpu_shared=1),
    )
    assert not list(only_node(found).all_pods)


def test_a_node_of_another_environments_pool_of_that_name_is_left_out() -> None:
    theirs = node("n9", "t4", gpus=1, gpuform_io__environment="other")
    ours = node("n0", "t4", gpus=1, gpuform_io__environment=ENV.name)
    assert only_node(view_of(Played(), theirs, ours)).name == "n0"


def test_a_pod_with_several_gpus_is_on_each() -> None:
    ids = (gpu_uuid("n2", 1), gpu_uuid("n2", 3))
    found = only_node(view_of(Played(), node("n2", "whole", gpus=4), pod("a/big", "n2", ids, gpu=2)))
    assert [[one.requested for one in gpu.pods] for gpu in found.gpus] == [[], [1.0], [], [1.0]]
    assert found.requested == 2


def test_top_table_is_a_tree_of_nodes_gpus_and_pods() -> None:
    power = series("gpuform:gpu:power_watts", 61.6, node="n0", gpu="0")
    found = view_of(Played([*gpu_series("n0", 0, 0.8, 6, 15), power]), *SHARED, node("n2", "whole", gpus=2))
    assert [line.rstrip() for line in shown(found).splitlines()] == [
        "Requested and used, in GPUs",
        "node, GPU, slice, pod           requested  resource      used          GPU memory       power",
        "n0 (t4, g2.5xlarge)             0.5 of 1                 0.8 of 1",
        "└─ GPU 0 Tesla-T4, 4 shares     0.5                      80 %          6.0 of 15.0 GiB  62 W",
        "   ├─ a/one                     0.25       gpu.shared 1  ~0.4",
        "   └─ b/two                     0.25       gpu.shared 1  ~0.4",
        "n2 (whole, g2.5xlarge)          0 of 2                   not measured",
        "├─ GPU 0 NVIDIA-A100-PCIE-40GB  free                     not measured",
        "└─ GPU 1 NVIDIA-A100-PCIE-40GB  free                     not measured",
    ]


def test_a_gpu_that_is_lost_is_still_the_nodes_and_says_what_is_wrong() -> None:
    lost = {"node": "n2", "gpu": "1", "UUID": "GPU-1", "class": "replace"}
    played = Played(gpu_series("n2", 0, 0.5, 1, 40))
    played.series.append(series("gpuform:fault:active", 1, **lost, reason="gpu_lost"))
    played.series.append(series("gpuform:fault:active", 1, **lost, reason="xid", xid="79"))
    for there in (node("n2", "whole"), node("n2", "whole", gpus=2)):
        found = view_of(played, there)
        first, second = only_node(found).gpus
        assert first.faults == ()
        assert sorted(map(str, second.faults)) == ["XID 79 (replace)", "gpu lost (replace)"]
        assert not second.use.measured
        (line,) = (line for line in shown(found).splitlines() if "GPU 1" in line)
        assert [word in line for word in ("(replace)", "unhealthy", "free")] == [True, True, False]
    faults = found.to_json()["nodes"][0]["gpus"][1]["faults"]
    assert {"reason": "gpu_lost", "class": "replace", "xid": ""} in faults


def test_without_prometheus_only_requests_are_shown_and_that_is_said() -> None:
    why = Failure("Prometheus", "does not answer", "look")
    found = view_of(Unavailable(why), *SHARED)
    title, head = (line.rstrip() for line in shown(found).splitlines()[:2])
    assert (title, head.split()[4:]) == ("Requested, in GPUs", ["requested", "resource"])
    assert top.top_notes(found) == ["requested only: Prometheus: does not answer; look"]
    assert found.to_json()["prometheus"] == {"answers": False, "why": "Prometheus: does not answer; look"}


def test_prometheus_without_gpu_series_is_named_as_the_reason() -> None:
    assert read_metrics(Prometheus(Played(), "")) == (Metrics(), NOTHING_YET)


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
    big = pod("a/big", "n2", (gpu_uuid("n2", 1),), gpu=1)
    found = view_of(Played(), *SHARED, node("n2", "whole", gpus=2), big).filtered(*asked)
    assert [one.name for one in found.nodes] == nodes
    assert [one.name for each in found.nodes for one in each.all_pods] == pods
    if asked[0]:
        assert all(list(gpu.all_pods) for each in found.nodes for gpu in each.gpus)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"taints": [{"key": "nvidia.com/gpu", "value": "true"}]}, ""),
        ({"unschedulable": True}, "cordoned"),
        ({"taints": [{"key": "gpuform.io/gpu-unhealthy", "value": "replace"}]}, "out of use: replace"),
        ({"taints": [{"key": "gpuform.io/gpu-not-ready"}]}, "its GPUs are not proven yet"),
    ],
)
def test_free_gpus_of_a_node_that_takes_no_pods_are_not_offered_without_a_word(
    spec: dict[str, Any], message: str
) -> None:
    found = view_of(Played(), {**node("w", "whole", gpus=4), "spec": spec})
    assert only_node(found).closed == message
    assert message in shown(found)
    assert found.to_json()["nodes"][0]["closed"] == message


def test_json_has_what_is_known_of_each_gpu() -> None:
    found = view_of(Played(gpu_series("n0", 0, 0.8, 6, 15)), *SHARED).to_json()
    assert found["growing"] == []
    (only,) = found["nodes"]
    share = {"resource": "nvidia.com/gpu.shared", "count": 1, "attributed": True}
    share |= {"requested_gpus": 0.25, "used_gpus": 0.4}
    assert only["gpus"] == [
        {
            **{
                "index": 0,
                "uuid": gpu_uuid("n0", 0),
                "model": "Tesla-T4",
                "shares": 4,
                "requested_gpus": 0.5,
            },
            **{"util": 0.8, "memory_used_bytes": 6 * 2**30, "memory_total_bytes": 15 * 2**30},
            **{"power_watts": None, "temperature_celsius": None, "faults": [], "slices": []},
            "pods": [{"namespace": "a", "name": "one", **share}, {"namespace": "b", "name": "two", **share}],
        }
    ]


def test_elastic_pools_are_listed_with_their_bounds() -> None:
    """A group without GPUs is not listed; for the others all their nodes count, shown or not."""
    found = view_of(Played([]), node("n1", "mig", 1, LAYOUT), node("n2", "mig", 1, LAYOUT), env=GROUPS)
    mig = {"pool": "mig", "nodes": 2, "min": 1, "max": 4}
    assert found.to_json()["growing"] == [mig, {"pool": "whole", "nodes": 0, "min": 1, "max": 2}]
    assert "pool mig has 2 nodes, and may have 1 to 4" in top.top_notes(found)
    assert "pool whole has 0 nodes, and may have 1 to 2" in top.top_notes(found)
    assert found.filtered(None, "mig", "n1").to_json()["growing"] == [mig]


def test_unknown_use_is_shown_as_not_measured() -> None:
    assert top.format_used(PodUse("a", "b", "b", "nvidia.com/gpu", 1, 1.0)) == "not measured"


def test_the_documentation_shows_every_key() -> None:
    text = (Path(__file__).parents[3] / "docs/howto/report.md").read_text(encoding="utf-8")
    shown = json.loads(text.partition("```json\n")[2].partition("```")[0])
    fault = series("gpuform:fault:active", 1, node="n1", gpu="0", reason="ecc")
    big = pod("a/b", "n1", (mig_uuid("n1", 0, "3g.20gb", 4),), mig_3g_20gb=1)
    played = Played([*gpu_series("n1", 0, 0.5, 1, 2), fault])
    current = view_of(played, node("n1", "mig", 1, LAYOUT), big, env=GROUPS)
    assert keys(shown) == keys(current.to_json())


def keys(value: Any) -> Any:
    """Its structure; of a list, that of the largest entry."""
    if isinstance(value, dict):
        return {key: keys(one) for key, one in value.items()}
    if isinstance(value, list):
        return max((keys(one) for one in value), key=lambda one: len(str(one)), default=None)
    return None


def test_every_key_of_simulated_nodes_is_one_of_the_simulators() -> None:
    ours = {value for name, value in vars(labels).items() if name.startswith("SIM_")}
    theirs = {value for value in vars(simulated).values() if isinstance(value, str)}
    names = ("cpu", "memory", "memory-capacity", "pods", "hugepages-2Mi")
    sizes = {f"simulator.gpuform.io/{name}" for name in names}
    assert sizes < ours, "kwok's stages read these"
    assert ours - theirs == sizes


def test_ids_are_those_of_the_simulated_device_manager() -> None:
    assert live_nodes.gpu_id("uid", 3) == device_plugin.gpu_id("uid", 3)
    assert live_nodes.mig_id("uid", 3, "1g.5gb", 2) == device_plugin.mig_id("uid", 3, "1g.5gb", 2)
