"""dcgm-exporter: its csv of counters, series, labels and pods, the models behind them, and the server."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.model.gpu.dcgm import FIELDS
from lab.simulator import counters, device_plugin, faults, keys, operands
from lab.simulator.actions import Recover
from lab.simulator.claimed import Claim
from lab.simulator.counters import (
    DEFAULT,
    KNOWN,
    NOT_SIMULATED,
    Counter,
    CountersError,
    config_error,
    requested_counters,
)
from lab.simulator.dcgm import device, load
from lab.simulator.dcgm.device import State, advance
from lab.simulator.dcgm.exporter import Server
from lab.simulator.faults import Fault
from lab.simulator.hardware import GPUS
from tests.external import reference
from tests.lab.simulator.worlds import GPU, START, Bench, make_pod, make_world, working

pytestmark = pytest.mark.unit

FILES = ("dcgm/default-counters.csv", "dcgm/dcp-metrics-included.csv")
NAMES = re.compile(r"\bDCGM_\w+")


def test_the_exporters_own_files_have_every_name_and_list_the_default_counters() -> None:
    texts = [reference(file).read_text() for file in FILES]
    default = {counter.name for counter in DEFAULT}
    assert set(NAMES.findall("\n".join(texts))) >= KNOWN
    assert set(NAMES.findall(re.sub("(?m)^#.*", "", "\n".join(texts)))) == default
    assert [{counter.name for counter in counters.read(text)} for text in texts] == [default, default]


def test_what_an_environment_may_ask_for_is_taken() -> None:
    """Some fields have no series: only those in the exporter's own files are simulated."""
    text = "".join(f"{name}, {field.type}, {field.help}\n" for name, field in FIELDS.items())
    assert {counter.name for counter in counters.read(text)} == KNOWN
    assert set(FIELDS) == KNOWN | NOT_SIMULATED


READ = {
    "# ours\n\nDCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder (in %).\n# DCGM_FI_X, gauge, y\n": "Decoder (in %).",
    'DCGM_FI_DEV_DEC_UTIL, gauge, "hot, or not"\n': "hot, or not",
}


@pytest.mark.parametrize("text", READ)
def test_blanks_comments_and_quotes_are_read(text: str) -> None:
    assert counters.read(text) == (Counter("DCGM_FI_DEV_DEC_UTIL", "gauge", READ[text]),)


UNKNOWN = "could not find DCGM field; err: unknown ExporterCounter field 'DCGM_FI_DEV_GPU_TEMPERATURE'"
WRONG = {
    "DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_DEV_GPU_TEMPERATURE, gauge, x\n": UNKNOWN,
    "DCGM_FI_DEV_GPU_TEMP, gauge, hot, or not\n": "expected 3 fields",
    "DCGM_FI_DEV_GPU_TEMP, gauge\n": "expected 3 fields",
    "DCGM_FI_DEV_GPU_TEMP, gage, x\n": "could not find Prometheus metric type 'gage'",
    "# nothing\n": "no metrics found",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_error_has_the_exporters_words(text: str) -> None:
    with pytest.raises(CountersError, match=re.escape(WRONG[text])):
        counters.read(text)


def exporter(world: Any, csv: str, start: str = "granted") -> Any:
    """The exporter's pod with a mounted csv; ``world`` knows what is wrong with it."""
    (pod,) = world.pods_of("dcgm-exporter")
    pod.template, pod.start = replace(pod.template, config_map="counters"), start
    broken = config_error(pod, maps(csv) if csv else {})
    world.configs |= {pod.uid: broken} if broken else {}
    return pod


def maps(text: str, key: str = "dcgm-metrics.csv") -> dict[tuple[str, str], dict[str, str]]:
    return {("gpu-operator", "counters"): {key: text}}


@pytest.mark.parametrize("key", ["dcgm-metrics.csv", "metrics"])
def test_the_csv_is_that_of_the_mounted_configmap(key: str) -> None:
    csv = "DCGM_FI_DEV_GPU_TEMP, gauge, x\n"
    pod = exporter(make_world(), csv)
    assert [counter.name for counter in requested_counters(pod, maps(csv, key))] == ["DCGM_FI_DEV_GPU_TEMP"]
    assert config_error(pod, maps(csv, key)) is None


@pytest.mark.parametrize("start", ["waits", "granted"])
def test_an_unknown_field_makes_the_exporter_crash_loop(start: str) -> None:
    world = make_world()
    pod = exporter(world, "DCGM_FI_NONSENSE, gauge, x\n", start)
    (crash,) = operands.act(world)
    assert (crash.pod, crash.container) == (pod, "dcgm-exporter")
    assert "DCGM_FI_NONSENSE" in crash.message
    pod.start, pod.crash = "granted", crash.message
    assert operands.act(world) == []
    del world.configs[pod.uid]
    assert operands.act(world) == [Recover(pod)]


def test_without_a_driver_it_does_not_start_and_one_that_runs_keeps_it() -> None:
    world = make_world(operands=("dcgm-exporter",))
    (pod,) = world.pods_of("dcgm-exporter")
    assert operands.act(world) == []
    pod.start = "waits"
    (crash,) = operands.act(world)
    assert "no driver on this node" in crash.message


def test_a_configmap_that_is_not_there_cannot_be_mounted() -> None:
    world = make_world()
    pod = exporter(world, "", "waits")
    (event,) = operands.act(world)
    assert (event.reason, '"counters" not found' in event.message) == ("FailedMount", True)
    pod.start = "granted"  # mounted files stay
    assert config_error(pod, {}) is None


def test_a_scrape_has_what_the_csv_asks_for_in_its_order() -> None:
    asked = {"DCGM_FI_DEV_POWER_USAGE": "watts", "DCGM_FI_DEV_GPU_TEMP": "degrees"}
    csv = "".join(f"{name}, gauge, {text}\n" for name, text in asked.items())
    bench = Bench(make_world())
    exporter(bench.world, csv)
    bench.store.config_maps |= maps(f"{csv}DCGM_FI_DRIVER_VERSION, label, version\n")
    heads = [(f"# HELP {name} {text}", f"# TYPE {name} gauge", name) for name, text in asked.items()]
    assert [line.split("{")[0] for line in bench.scrape().text.splitlines()] == [*heads[0], *heads[1]]
    bench.store.config_maps |= maps("DCGM_FI_DEV_SM_CLOCK, gauge, edited\n")
    assert bench.scrape().names == {"DCGM_FI_DEV_SM_CLOCK"}
    bench.store.config_maps |= maps("nonsense\n")
    assert bench.exporters.scrape("node-0")[0] == 503


A100 = "20b0"
CUT = {keys.MIG_LAYOUT: json.dumps({"1": ["3g.20gb@0", "2g.10gb@4", "1g.5gb@6"]})}
UTILS = {f"DCGM_FI_DEV_{kind}_UTIL" for kind in ("GPU", "MEM_COPY", "ENC", "DEC")}
BYTES = {f"DCGM_FI_PROF_PCIE_{way}_BYTES" for way in ("TX", "RX")}
NOT_ON_INSTANCES = UTILS | BYTES | {"DCGM_EXP_GPU_HEALTH_STATUS"}


def test_labels_of_a_whole_gpu() -> None:
    world = make_world(gpu=A100, count=2)
    series = Bench(world).scrape()
    assert series.of("GPU_TEMP")[1][0] == {
        **{"pci_bus_id": "00000000:17:00.0", "device": "nvidia1", "modelName": "NVIDIA A100-SXM4-40GB"},
        **{"gpu": "1", "UUID": device_plugin.gpu_uuid(world, 1), "Hostname": "node-0"},
        "DCGM_FI_DRIVER_VERSION": "595.91.07",
    }
    assert {"err_code": "0", "err_msg": "No Error"}.items() <= series.of("XID_ERRORS")[0][0].items()


def test_a_pod_alone_on_a_gpu_is_named_and_others_are_not() -> None:
    world = make_world(gpu=A100, count=3)
    ids = [device_plugin.gpu_uuid(world, n) for n in range(3)]
    world.pods += [
        make_pod("train", asks={GPU: 1}, devices=ids[0]),
        make_pod("shared-a", asks={f"{GPU}.shared": 1}, devices=f"{ids[1]}::0", load="0.2"),
        make_pod("shared-b", asks={f"{GPU}.shared": 1}, devices=f"{ids[1]}::3", load="0.3"),
    ]
    series = Bench(world).scrape()
    wanted = ("pod", "namespace", "container")
    names = [[labels.get(key) for key in wanted] for labels, _ in series.of("GPU_UTIL")]
    assert names == [["train", "default", "c0"], [None] * 3, [None] * 3]
    assert [value for _, value in series.of("GPU_UTIL")] == [50, 50, 0]


def test_a_cut_gpu_has_a_row_per_instance() -> None:
    world = make_world(gpu=A100, count=2, annotations=CUT)
    holds = {"devices": device_plugin.mig_uuid(world, 1, "3g.20gb", 0), "held": "9000"}
    world.pods.append(make_pod("infer", asks={"nvidia.com/mig-3g.20gb": 1}, load="0.8", **holds))
    series = Bench(world).with_every_counter().scrape()
    rows = series.of("GR_ENGINE_ACTIVE", gpu="1")
    result = [(row["GPU_I_PROFILE"], row["GPU_I_ID"], row.get("pod"), value) for row, value in rows]
    assert result == [("3g.20gb", "1", "infer", 0.8), ("2g.10gb", "5", None, 0), ("1g.5gb", "13", None, 0)]
    used = {labels["GPU_I_PROFILE"]: value for labels, value in series.of("FB_USED", gpu="1")}
    assert used == {"3g.20gb": 9000, "2g.10gb": 0, "1g.5gb": 0}
    whole = {name for name, labels, _ in series.samples if labels["gpu"] == "0"}
    instance = {name for name, labels, _ in series.samples if labels["gpu"] == "1"}
    assert whole - instance == NOT_ON_INSTANCES
    # Each instance repeats its GPU's values: a sum of power over instances counts it three times.
    watts = {value for _, value in series.of("POWER_USAGE", gpu="1")}
    assert watts == {50 + 350 * 0.8 * 3 / 7}


def test_a_gpu_with_mig_on_and_no_instance_has_a_row_of_its_own() -> None:
    series = Bench(make_world(gpu=A100, annotations={keys.MIG_LAYOUT: '{"0": []}'})).scrape()
    assert "GPU_I_ID" not in series.of("GPU_TEMP")[0][0]


def test_no_model_has_series_that_it_cannot_have() -> None:
    t4 = Bench(make_world(gpu="1eb8")).with_every_counter().scrape().names
    assert not any("NVLINK" in name or "ROW" in name or "MEMORY_TEMP" in name for name in t4)
    assert "DCGM_FI_DEV_RETIRED_DBE" in t4
    a100 = Bench(make_world(gpu=A100)).with_every_counter().scrape().names
    assert "DCGM_FI_DEV_RETIRED_DBE" not in a100
    labels = {name for name in KNOWN if name.endswith(("_VER", "_VERSION", "_BRAND", "_SERIAL"))}
    retired = {name for name in KNOWN if "RETIRED" in name}
    assert a100 == KNOWN - labels - retired - {"DCGM_EXP_P2P_STATUS"}


def test_there_is_no_answer_without_an_exporter() -> None:
    bench = Bench(make_world())
    assert bench.exporters.scrape("nowhere") == (404, "there is no node nowhere\n")
    bench.world.pods_of("dcgm-exporter")[0].phase = "Pending"
    assert bench.exporters.scrape("node-0") == (503, "node-0: no dcgm-exporter runs on this node\n")


def test_a_claimed_device_works_and_no_pod_is_named() -> None:
    bench = Bench(make_world(gpu=A100, count=2, annotations=CUT))
    used = {"gpu-0": ("lab/p",), "gpu-1-mig-2g10gb-14-4": ("lab/p",), "gpu-1-mig-1g5gb-19-6": ()}
    claims = {("lab", name): Claim("lab", name, "node-0", (name,), pods) for name, pods in used.items()}
    bench.store.claimed._on_node["node-0"] = claims
    result = bench.scrape().of("GR_ENGINE_ACTIVE")
    busy = [(labels.get("GPU_I_PROFILE"), value) for labels, value in result]
    assert busy == [(None, 0.5), ("3g.20gb", 0), ("2g.10gb", 0.5), ("1g.5gb", 0)]
    assert not any("pod" in labels for labels, _ in result)


COUNTERS = """
TOTAL_ENERGY_CONSUMPTION NVLINK_BANDWIDTH_TOTAL NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL POWER_VIOLATION
NVLINK_REPLAY_ERROR_COUNT_TOTAL THERMAL_VIOLATION ECC_DBE_AGG_TOTAL UNCORRECTABLE_REMAPPED_ROWS
"""
KINDS = (faults.ECC, faults.THERMAL, faults.POWER, faults.NVLINK, faults.ROW_REMAP)
SHARES = st.floats(0, 1)
SECONDS = st.floats(-5, 400)  # negative: the clock was set back
STEP = st.tuples(SECONDS, SHARES, SHARES, st.sets(st.sampled_from(KINDS)), st.booleans())


@given(steps=st.lists(STEP, min_size=2, max_size=12))
def test_counters_fall_only_when_the_driver_is_started_again(steps: Any) -> None:
    state, gpu, now, seen = State(), GPUS[A100], START, []
    since: dict[str, float] = {}
    for seconds, busy, link, kinds, restart in steps:
        now += seconds
        since = {kind: since.get(kind, now) for kind in kinds}
        broken = {kind: Fault(kind, 0, since[kind]) for kind in sorted(kinds)}
        if restart:
            state = state.after_restart(now)
        advance(state, gpu, busy, link, broken, now)
        seen.append((restart, device.gpu_values(state, gpu, busy, broken)))
        assert 50 <= state.watts <= 400
        assert 30 <= state.celsius <= 96.01
    for (_, before), (restart, after) in pairwise(seen):
        for name in COUNTERS.split():
            kept = name.endswith(("AGG_TOTAL", "REMAPPED_ROWS"))
            field = f"DCGM_FI_DEV_{name}"
            assert after[field] >= before[field] or (restart and not kept), name


@given(total=st.integers(1000, 200_000), held=st.integers(0, 400_000))
def test_memory_adds_up_to_what_there_is(total: int, held: int) -> None:
    result = [value for name, value in device.device_values(0, total, held, True).items() if "_FB_" in name]
    assert (len(result), sum(result), min(result) >= 0) == (3, total, True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # both are factories without state
@given(loads=st.lists(st.text(alphabet="0123456789.-einasx", max_size=6) | st.sampled_from(["sine", "idle"])))
def test_how_busy_is_between_nothing_and_all_whatever_pods_say(loads: list[str]) -> None:
    world = make_world(gpu="20b0", count=1)
    uuid = device_plugin.gpu_uuid(world, 0)
    for n, word in enumerate(loads):
        world.pods.append(make_pod(f"p{n}", asks={GPU: 1}, devices=f"{uuid}::{n}", load=word))
    assert 0 <= load.usage_by_device(world, START)[uuid].busy <= 1


DEFAULTS = {
    ("Job", ""): 0.9,
    ("StatefulSet", ""): 0.05,
    ("Pod", ""): 0.5,
    ("", "a lot"): 0.5,
    ("Job", "idle"): 0.0,
    ("Job", "0.25"): 0.25,
    ("Job", "2"): 0.9,
    ("Job", "nan"): 0.9,
}


@pytest.mark.parametrize(("owner", "message"), DEFAULTS)
def test_a_load_that_is_not_said_follows_from_the_owner(owner: str, message: str) -> None:
    pod = make_pod("p", asks={GPU: 1}, devices="GPU-x", owner=(owner, "o", "u"), load=message)
    assert load.load_of(pod, START) == DEFAULTS[owner, message]


def test_a_service_comes_and_goes_and_two_are_not_in_step() -> None:
    owned = {"devices": "GPU-x", "owner": ("ReplicaSet", "o", "u")}
    pods = [make_pod(f"p{n}", asks={GPU: 1}, **owned) for n in range(2)]
    curves = [[load.load_of(pod, START + t) for t in range(0, 600, 10)] for pod in pods]
    for curve in curves:
        assert (min(curve), max(curve)) == (pytest.approx(0.1, abs=0.01), pytest.approx(0.9, abs=0.01))
    assert curves[0] != curves[1]


@pytest.mark.parametrize("change", [{"phase": "Pending"}, {"crash": "x"}, {"phase": "Failed"}])
def test_a_pod_that_is_down_does_nothing(change: dict[str, str]) -> None:
    bench, pod = working("1")
    for name, value in change.items():
        setattr(pod, name, value)
    assert bench.scrape().one("GPU_UTIL") == 0


def test_a_busy_pod_holds_memory_even_if_it_declares_none() -> None:
    bench, pod = working("1")
    whole = GPUS[A100].memory_mib
    assert bench.scrape().one("FB_USED") == int(0.6 * whole)
    pod.devices += "::2"
    bench.world.node.labels["nvidia.com/gpu.replicas"] = "4"
    assert bench.scrape().one("FB_USED") == int(0.6 * whole) // 4
    pod.load = "idle"
    assert bench.scrape().one("FB_USED") == 0
    pod.load, pod.memory, pod.held = "1", "2000", "2000"
    assert bench.scrape().one("FB_USED") == 2000
    pod.held = ""  # it waits for memory
    assert bench.scrape().one("FB_USED") == 0


def test_energy_is_power_over_time_in_millijoules() -> None:
    bench, pod = working("1")
    assert bench.scrape().one("TOTAL_ENERGY_CONSUMPTION") == 0
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == 400 * 10 * 1000
    pod.load = "idle"  # in between it counts as the mean of 400 and 50 W
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == (4000 + 2250) * 1000
    assert bench.scrape(after=-60).one("TOTAL_ENERGY_CONSUMPTION") == 6250 * 1000


def test_the_temperature_follows_with_its_time_constant() -> None:
    bench, pod = working("idle")
    cold = 30 + 45 / 8
    assert bench.scrape().one("GPU_TEMP") == round(cold)
    pod.load = "1"
    assert bench.scrape(after=30).one("GPU_TEMP") == round(75 + (cold - 75) / math.e)
    assert bench.scrape(after=600).one("GPU_TEMP") == 75


def test_links_carry_bytes_where_a_pod_has_two_gpus() -> None:
    world = make_world(gpu="20b0", count=3)
    ids = [device_plugin.gpu_uuid(world, n) for n in range(3)]
    for name, own in (("two", ids[:2]), ("one", ids[2:])):
        world.pods.append(make_pod(name, asks={GPU: len(own)}, devices=",".join(own), load="0.5"))
    bench = Bench(world)
    bench.scrape()
    result = [value for _, value in bench.scrape(after=10).of("NVLINK_BANDWIDTH_TOTAL")]
    assert result == [600e9 * 0.25 * 0.5 * 10] * 2 + [0]


@pytest.mark.parametrize("changed", ["driver", "node"])
def test_another_driver_or_node_of_that_name_begins_anew(changed: str) -> None:
    bench, _ = working("idle")
    bench.scrape()
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") > 0
    (bench.world.node if changed == "node" else bench.world.pods_of("driver")[0]).uid = "another"
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == 0
    assert bench.scrape(after=10).one("TOTAL_ENERGY_CONSUMPTION") == 50 * 10 * 1000


def scrape(name: str) -> tuple[int, str]:
    if name == "broken":
        raise ZeroDivisionError
    return (200, "a 1\n") if name == "node-0" else (503, f"{name}: down\n")


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    server = Server(scrape, 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", trust_env=False) as made:
        yield made
    server.close()


ANSWERS = {
    "/healthz": (200, "ok\n"),
    "/nodes/node-0/metrics": (200, "a 1\n"),
    "/nodes/node%2D0/metrics?x=1": (200, "a 1\n"),
    "/nodes/node-1/metrics": (503, "node-1: down\n"),
    "/nodes//metrics": (404, "the paths are /nodes/NODE/metrics and /healthz\n"),
    "/metrics": (404, "the paths are /nodes/NODE/metrics and /healthz\n"),
    "/nodes/broken/metrics": (500, "broken: see the simulator's log\n"),
}


@pytest.mark.parametrize("path", ANSWERS)
def test_each_path_has_its_answer(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.text) == ANSWERS[path]
    kind = "text/plain; version=0.0.4; charset=utf-8" if answer.is_success else "text/plain; charset=utf-8"
    assert answer.headers["Content-Type"] == kind


def test_it_only_reads_on_loopback_and_a_taken_port_is_an_error(client: httpx.Client) -> None:
    assert client.post("/healthz", content="{}").is_error
    with pytest.raises(OSError, match="Address already in use"):
        Server(scrape, client.base_url.port or 0)
