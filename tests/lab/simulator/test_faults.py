"""Faults of simulated GPUs: effects on series, exporter and allocatable, and ``gpuform simulate fault``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpuform.checkout.errors import InputError
from gpuform.cli.main import app
from infra.model.gpu.xid import CLASSES, DEVICE_PLUGIN_SKIPS, numbers
from lab.plane.gpu_faults import FaultRequest, change_fault
from lab.simulator import device_plugin, faults, keys, kubelet, operands
from lab.simulator.actions import Annotate, Crash, Delete, NodeResources, Recover
from lab.simulator.faults import Fault
from tests.lab.simulator.worlds import GPU, START, Bench, Series, make_pod, make_world, working

pytestmark = pytest.mark.unit


@pytest.fixture
def bench() -> Bench:
    return Bench(make_world(gpu="20b0", count=2)).with_every_counter()


def restart(bench: Bench, operand: str, moment: float) -> None:
    (pod,) = bench.world.pods_of(operand)
    pod.created = datetime.fromtimestamp(moment, UTC).isoformat()


def counted(series: Series, gpu: int = 0) -> dict[str, float]:
    return {labels.get("xid", ""): value for labels, value in series.of("XID_ERRORS_COUNT", gpu=str(gpu))}


def test_an_xid_counts_for_five_minutes_and_stays_as_the_last_one(bench: Bench) -> None:
    assert counted(bench.scrape()) == {"": 0}
    bench.broken(Fault("xid", 0, bench.now + 1, 31), Fault("xid", 0, bench.now + 2, 79))
    series = bench.scrape(after=10)
    assert counted(series) == {"31": 1, "79": 1}
    assert {labels["window_size_in_ms"] for labels, _ in series.of("XID_ERRORS_COUNT", gpu="0")} == {"300000"}
    assert counted(series, gpu=1) == {"": 0}
    ((labels, value),) = series.of("XID_ERRORS", gpu="0")
    assert (value, labels["err_code"], labels["err_msg"]) == (79, "79", "GPU has fallen off the bus")
    bench.broken()  # clearing does not undo past XIDs
    assert counted(bench.scrape(after=285)) == {"31": 1, "79": 1}
    series = bench.scrape(after=20)
    assert counted(series) == {"": 0}
    assert series.one("XID_ERRORS", gpu="0") == 79


def test_the_same_xid_again_counts_again(bench: Bench) -> None:
    bench.broken(Fault("xid", 1, bench.now, 13), Fault("xid", 1, bench.now + 1, 13))
    assert counted(bench.scrape(after=2), gpu=1) == {"13": 2}


def test_an_exporter_that_was_started_afterwards_has_not_heard_of_it(bench: Bench) -> None:
    bench.broken(Fault("xid", 0, bench.now, 74))
    assert bench.scrape(after=1).one("XID_ERRORS", gpu="0") == 74
    restart(bench, "dcgm-exporter", bench.now + 1)
    series = bench.scrape(after=5)
    assert (series.one("XID_ERRORS", gpu="0"), counted(series)) == (0, {"": 0})


def test_broken_memory_makes_an_error_a_minute_until_it_is_reset(bench: Bench) -> None:
    bench.broken(Fault("ecc", 0, bench.now))
    series = bench.scrape(after=130)
    names = ("ECC_DBE_VOL_TOTAL", "ECC_DBE_AGG_TOTAL", "UNCORRECTABLE_REMAPPED_ROWS")
    assert [series.one(name, gpu="0") for name in names] == [3, 3, 3]
    assert counted(series) == {"48": 3}
    assert series.one("ECC_DBE_VOL_TOTAL", gpu="1") == 0
    bench.broken()
    series = bench.scrape(after=1)
    assert [series.one(name, gpu="0") for name in names[:2]] == [0, 3]


@pytest.mark.parametrize(("kind", "xid"), [("gpu-lost", 0), ("xid", 79)])
def test_a_lost_gpu_says_nothing_but_why(bench: Bench, kind: str, xid: int) -> None:
    bench.broken(Fault(kind, 1, bench.now, xid))
    series = bench.scrape(after=1)
    left = {name.removeprefix("DCGM_") for name, labels, _ in series.samples if labels["gpu"] == "1"}
    exporter = {f"EXP_{name}" for name in ("XID_ERRORS_COUNT", "CLOCK_EVENTS_COUNT", "GPU_HEALTH_STATUS")}
    assert left == {"FI_DEV_XID_ERRORS", *exporter}
    assert counted(series, gpu=1) == {"79": 1}
    assert series.one("GPU_HEALTH_STATUS", gpu="1", health_watch="ALL") == 20
    restart(bench, "dcgm-exporter", bench.now + 1)
    assert {labels["gpu"] for _, labels, _ in bench.scrape(after=5).samples} == {"0"}
    bench.broken()
    assert {labels["gpu"] for _, labels, _ in bench.scrape(after=5).samples} == {"0", "1"}


def test_without_cooling_it_is_hot_slow_and_throttled() -> None:
    bench = working()[0].with_every_counter()
    before = bench.scrape()
    assert (before.one("GPU_TEMP"), before.one("SM_CLOCK")) == (75, 1410)
    bench.broken(Fault("thermal", 0, bench.now))
    after = bench.scrape(after=120)
    assert (after.one("GPU_TEMP"), after.one("SM_CLOCK"), after.one("POWER_USAGE")) == (96, 705, 400)
    assert after.one("THERMAL_VIOLATION") == 120e9
    events = {labels["clock_event"]: value for labels, value in after.of("CLOCK_EVENTS_COUNT")}
    assert events == {"hw_slowdown": 4, "hw_thermal": 4}
    bench.broken()
    again = bench.scrape(after=600)
    assert (again.one("GPU_TEMP"), again.one("THERMAL_VIOLATION")) == (75, 120e9)


LINKS = [f"NVLINK_{kind}_ERROR_COUNT_TOTAL" for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")]
# Values 30 s after the fault began, and once it is cleared.
LASTING = {
    "power": (
        {"POWER_USAGE": 200, "SM_CLOCK": 987, "POWER_VIOLATION": 30e9, "THERMAL_VIOLATION": 0},
        {"POWER_USAGE": 400, "SM_CLOCK": 1410, "POWER_VIOLATION": 30e9},
    ),
    "nvlink": (dict.fromkeys(LINKS, 300), dict.fromkeys(LINKS, 300)),
    "row-remap": ({"ROW_REMAP_FAILURE": 1}, {"ROW_REMAP_FAILURE": 0}),
}


@pytest.mark.parametrize("kind", LASTING)
def test_what_a_fault_does_to_the_series_and_what_stays(kind: str) -> None:
    bench = working()[0].with_every_counter()
    bench.scrape()
    bench.broken(Fault(kind, 0, bench.now))
    series, (during, after) = bench.scrape(after=30), LASTING[kind]
    assert {name: series.one(name) for name in during} == during
    assert counted(series) == {"": 0}
    bench.broken()
    series = bench.scrape(after=1)
    assert {name: series.one(name) for name in after} == after


def test_an_exporter_that_is_down_crash_loops_answers_nothing_and_forgets(bench: Bench) -> None:
    bench.broken(Fault("xid", 0, bench.now, 13))
    bench.scrape(after=1)
    bench.broken(Fault("exporter-down", -1, bench.now))
    (crash,) = operands.act(bench.world)
    assert isinstance(crash, Crash)
    assert (crash.pod.operand, crash.container) == ("dcgm-exporter", "dcgm-exporter")
    assert bench.exporters.scrape("node-0")[0] == 503
    crash.pod.crash = crash.message
    assert operands.act(bench.world) == []
    bench.now += 60
    assert bench.exporters.scrape("node-0")[0] == 503
    bench.broken()
    assert [type(action) for action in operands.act(bench.world)] == [Recover]
    crash.pod.crash = ""
    series = bench.scrape(after=1)
    assert (series.one("XID_ERRORS", gpu="0"), counted(series)) == (0, {"": 0})


def test_without_its_fabric_manager_the_node_is_not_validated() -> None:
    world = make_world(gpu="2330", count=8)
    runs = make_pod("v", "validator")
    job = make_pod("c", "cuda-validator", phase="Succeeded")
    world.pods += [runs, job]
    assert operands.act(world) == []
    world.node.annotations[keys.FAULTS] = faults.render([Fault("fabric-manager", -1, START)]) or ""
    assert operands.act(world) == [Delete(runs)]
    runs.start, runs.phase, runs.ready = "waits", "Pending", False
    (crash,) = operands.act(world)
    assert isinstance(crash, Crash)
    assert (crash.pod, crash.container) == (runs, "cuda-validation")
    runs.crash = crash.message
    assert operands.act(world) == []
    del world.node.annotations[keys.FAULTS]
    (start,) = operands.act(world)
    assert isinstance(start, Annotate)
    assert start.annotations == {keys.START: "granted"}


def allocatable(world: Any) -> int:
    (action,) = kubelet.report_resources(world)
    assert isinstance(action, NodeResources)
    assert action.capacity == {GPU: 2}
    return action.allocatable[GPU]


def test_every_xid_that_the_alerts_know_can_be_sent() -> None:
    assert {number for kind in CLASSES for number in numbers(kind)} <= faults.XIDS.keys()
    assert DEVICE_PLUGIN_SKIPS == faults.APPLICATION_XIDS


@pytest.mark.parametrize("xid", sorted(faults.XIDS))
def test_the_plugin_takes_a_gpu_away_for_every_xid_but_the_applications(bench: Bench, xid: int) -> None:
    bench.broken(Fault("xid", 0, bench.now, xid))
    mine = xid in (13, 31, 43, 45, 68, 109)
    assert allocatable(bench.world) == (2 if mine else 1)
    noted = [action for action in device_plugin.act(bench.world) if isinstance(action, Annotate)]
    assert bool(noted) != mine


@pytest.mark.parametrize("kind", ["ecc", "gpu-lost", "thermal", "power", "nvlink", "row-remap"])
def test_what_sends_an_xid_takes_the_gpu_away(bench: Bench, kind: str) -> None:
    bench.broken(Fault(kind, 1, bench.now))
    assert allocatable(bench.world) == (1 if kind in ("ecc", "gpu-lost") else 2)


@pytest.mark.parametrize(("kind", "xid", "left"), [("xid", 48, 2), ("xid", 79, 1), ("gpu-lost", 0, 1)])
def test_a_plugin_that_was_started_later_has_not_seen_an_xid(
    bench: Bench, kind: str, xid: int, left: int
) -> None:
    bench.broken(Fault(kind, 0, START, xid))
    restart(bench, "device-plugin", START + 5)
    assert allocatable(bench.world) == left


def test_an_entry_survives_being_written_and_read() -> None:
    entries = (Fault("xid", 3, START + 0.25, 79), Fault("power", 0, START), Fault("exporter-down", -1, START))
    assert faults.parse(faults.render(entries) or "") == entries
    assert faults.render(()) is None


BAD = '[{"kind": "fire", "gpu": 0, "since": "now"}]'


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[7]", '[{"kind": "xid"}]', '{"a": 1}', BAD])
def test_an_annotation_that_is_no_list_of_faults_breaks_nothing(bench: Bench, text: str) -> None:
    bench.world.node.annotations[keys.FAULTS] = text
    assert faults.faults_of(bench.world.node) == ()
    assert allocatable(bench.world) == 2
    assert bench.scrape().one("GPU_TEMP", gpu="0") > 0


def test_a_gpu_that_the_node_has_not_breaks_nothing(bench: Bench) -> None:
    bench.broken(Fault("gpu-lost", 9, bench.now))
    assert allocatable(bench.world) == 2
    assert json.loads(bench.world.node.annotations[keys.FAULTS])[0]["gpu"] == 9
    assert {labels["gpu"] for _, labels, _ in bench.scrape().samples} == {"0", "1"}


class Cluster:
    """An API server with two simulated GPU nodes and one without; only the requests of the command."""

    def __init__(self) -> None:
        self.nodes = {
            "a100-0": {keys.GPU_ID: "10de:20b0", keys.GPU_COUNT: "4"},
            "t4-0": {keys.GPU_ID: "10DE:1EB8", keys.GPU_COUNT: "1"},
            "odd-0": {keys.GPU_ID: "10de:ffff", keys.GPU_COUNT: "1"},
            "dgx-0": {keys.GPU_ID: "10de:2330", keys.GPU_COUNT: "8"},
            "cpu-0": {},
        }
        self.deleted: list[str] = []
        self.patches = 0

    def __call__(self, _: Path) -> Cluster:
        return self

    async def pages(self, path: str, params: dict[str, str]) -> AsyncIterator[tuple[list[Any], str]]:
        if path == "/api/v1/pods":
            labels = {keys.PART_OF: keys.CHART, keys.OPERAND: "device-plugin"}
            plugin = {"namespace": "gpu-operator", "name": "plugin", "uid": "u", "labels": labels}
            yield [{"metadata": plugin}, {"metadata": {**plugin, "name": "other", "labels": {}}}], "1"
            return
        name = params["fieldSelector"].partition("=")[2]
        found = self.nodes.get(name)
        yield ([] if found is None else [{"metadata": {"name": name, "annotations": found}}]), "1"

    async def patch(self, path: str, body: dict[str, Any]) -> None:
        self.patches += 1
        for key, value in body["metadata"]["annotations"].items():
            node = self.nodes[path.rpartition("/")[2]]
            node.pop(key, None)
            if value is not None:
                node[key] = value

    async def delete(self, path: str, _: dict[str, Any]) -> None:
        self.deleted.append(path)

    async def close(self) -> None:
        pass

    def of(self, node: str) -> tuple[Fault, ...]:
        return faults.parse(self.nodes[node].get(keys.FAULTS, "[]"))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    (tmp_path / "kubeconfig").touch()
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path))
    monkeypatch.setattr("lab.plane.gpu_faults.Api", made)
    return made


@pytest.fixture
def do(tmp_path: Path) -> Any:
    def run(node: str, *kinds: str, now: float = START, **fields: Any) -> list[str]:
        request = FaultRequest(node, kinds=kinds, **fields)
        return asyncio.run(change_fault(tmp_path / "kubeconfig", request, now))

    return run


def simulate(*words: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *words])


def test_faults_are_written_and_cleared_by_gpu(cluster: Cluster, do: Any) -> None:
    removed = "the device plugin removes the GPU from allocatable, and its series are gone"
    fallen = f"XID 79 (GPU has fallen off the bus): {removed}"
    assert do("a100-0", xid=79, gpu=1) == [f"a100-0: GPU 1: {fallen}"]
    page = "XID 31 (GPU memory page fault): the device plugin ignores it"
    assert do("a100-0", xid=31) == [f"a100-0: GPU 0: {page}"]
    hot = "its cooling has failed: it is hot, and throttled"
    assert do("a100-0", "thermal", gpu=1) == [f"a100-0: GPU 1: {hot}"]
    assert do("a100-0", "exporter-down") == ["a100-0: dcgm-exporter crash-loops"]
    thermal, down = Fault("thermal", 1, START), Fault("exporter-down", -1, START)
    assert {*cluster.of("a100-0")} == {Fault("xid", 1, START, 79), Fault("xid", 0, START, 31), thermal, down}
    assert do("a100-0", clear=True, gpu=1) == [
        "a100-0: GPU 1: cleared thermal, xid",
        "gpu-operator/plugin: is restarted, since it never reports a GPU as healthy again",
    ]
    assert [fault.kind for fault in cluster.of("a100-0")] == ["xid", "exporter-down"]
    cluster.deleted.clear()
    assert do("a100-0", clear=True) == ["a100-0: cleared exporter-down, xid"]
    assert cluster.deleted == []  # the plugin does not react to XID 31
    assert keys.FAULTS not in cluster.nodes["a100-0"]
    assert do("a100-0", clear=True) == ["a100-0: has no fault"]


def test_a_fault_that_is_there_is_not_made_again_but_an_xid_is(cluster: Cluster, do: Any) -> None:
    do("a100-0", "ecc")
    assert do("a100-0", "ecc", now=START + 9) == ["a100-0: GPU 0: already has this fault"]
    do("a100-0", xid=13)
    do("a100-0", xid=13, now=START + 9)
    made = [(fault.kind, fault.since) for fault in cluster.of("a100-0")]
    assert made == [("ecc", START), ("xid", START), ("xid", START + 9)]


def test_a_fabric_manager_is_the_nodes(cluster: Cluster, do: Any) -> None:
    (output,) = do("dgx-0", "fabric-manager")
    assert output.startswith("dgx-0: its fabric manager does not run")
    assert cluster.of("dgx-0") == (Fault("fabric-manager", -1, START),)
    assert do("dgx-0", "fabric-manager") == ["dgx-0: already has this fault"]


def test_the_annotation_does_not_grow_for_ever(cluster: Cluster, do: Any) -> None:
    old = [Fault("thermal", 0, START), *(Fault("xid", 0, START + n, 79) for n in range(300))]
    text = faults.render([*old, Fault("xid", 0, START, 13)])
    assert text is not None
    cluster.nodes["a100-0"][keys.FAULTS] = text
    do("a100-0", xid=13, now=START + 4000)
    result = cluster.of("a100-0")
    assert len(result) == 202
    assert result[0].kind == "thermal"
    assert sum(fault.xid == 13 for fault in result) == 1  # XIDs older than an hour are dropped


TWO = "more than one at a time"
RANGE = "use a number from 0 to 3"
WRONG: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str, str]] = {
    "nothing": ((), {}, "gpuform simulate fault", "no fault is given", "give one of --xid N, --ecc"),
    "two kinds": (("ecc", "thermal"), {}, "--ecc --thermal", TWO, "give one of"),
    "a kind and an XID": (("ecc",), {"xid": 79}, "--ecc --xid", TWO, "give one of"),
    "a kind and clear": (("ecc",), {"clear": True}, "--ecc --clear", TWO, "give one of"),
    "an unknown XID": ((), {"xid": 7}, "--xid", "7 is not an XID of a data-centre GPU", "one of 8, 11, 13"),
    "no XID": ((), {"xid": 0}, "--xid", "0 is not an XID", "one of"),
    "a GPU too far": (("ecc",), {"gpu": 4}, "--gpu", "a100-0 has no GPU 4", RANGE),
    "a GPU below": (("ecc",), {"gpu": -1}, "--gpu", "a100-0 has no GPU -1", RANGE),
    "clear beyond": ((), {"clear": True, "gpu": 4}, "--gpu", "has no GPU 4", RANGE),
    "an exporter of a GPU": (
        ("exporter-down",), {"gpu": 0}, "--gpu", "breaks the node, not one of its GPUs", "leave --gpu out"
    ),
    "no such node": (("ecc",), {"node": "nowhere"}, "NODE", "there is no node nowhere", "kubectl get nodes"),
    "no GPU there": (("ecc",), {"node": "cpu-0"}, "NODE", "cpu-0 has no simulated GPU", "that has one"),
    "an unknown GPU": (("ecc",), {"node": "odd-0"}, "NODE", "unknown GPU ffff", "with a known one"),
    "no switches": (("fabric-manager",), {}, "--fabric-manager", "4 x NVIDIA A100-SXM4-40GB have", "with 8"),
    "no links": (("nvlink",), {"node": "t4-0"}, "--nvlink", "Tesla T4 has no NVLink", "with NVLink"),
    "no rows": (("row-remap",), {"node": "t4-0"}, "--row-remap", "Tesla T4 does not remap", "use --ecc"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_refused_and_nothing_is_changed(cluster: Cluster, do: Any, case: str) -> None:
    kinds, fields, path, fact, remedy = WRONG[case]
    fields = dict(fields)
    with pytest.raises(InputError) as caught:
        do(fields.pop("node", "a100-0"), *kinds, **fields)
    error = caught.value
    assert (error.path, fact in error.fact, remedy in error.remedy) == (path, True, True), error
    assert cluster.patches == 0


def test_nvidia_three_gpus_one_unhealthy(cluster: Cluster) -> None:
    def said(*more: str) -> str:
        done = simulate("health", "a100-0", "--gpu", "2", *more)
        assert done.exit_code == 0, done.output
        return done.stdout

    stay = "its devices stay in the capacity, and are not allocatable"
    assert said() == f"a100-0: GPU 2 is unhealthy: {stay}\n"
    assert cluster.nodes["a100-0"][keys.UNHEALTHY] == "2"
    assert (said(), cluster.patches, cluster.deleted) == ("a100-0: GPU 2 is already unhealthy\n", 1, [])
    restarted = "is restarted, since it never reports a GPU as healthy again"
    assert said("--ok") == f"a100-0: GPU 2 is healthy\ngpu-operator/plugin: {restarted}\n"
    assert cluster.deleted == ["/api/v1/namespaces/gpu-operator/pods/plugin"]
    assert keys.UNHEALTHY not in cluster.nodes["a100-0"]


@pytest.mark.parametrize("kind", [kind for kind in faults.KINDS if kind != "xid"])
def test_each_flag_is_its_fault(cluster: Cluster, kind: str) -> None:
    done = simulate("fault", "dgx-0", f"--{kind}")
    assert done.exit_code == 0, done.output
    assert [fault.kind for fault in cluster.of("dgx-0")] == [kind]
    assert (simulate("fault", "dgx-0", f"--{kind}", "--xid", "13").exit_code, cluster.patches) == (2, 1)
