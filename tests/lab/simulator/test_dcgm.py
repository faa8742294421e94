"""dcgm-exporter: its csv of counters, a scrape's series, labels and pods, and the server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from infra.model.gpu.dcgm import FIELDS
from lab.simulator import counters, device_plugin, keys, operands
from lab.simulator.actions import Crash, Event, Recover
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
from lab.simulator.dcgm.exporter import Server
from tests.external import reference
from tests.lab.simulator.worlds import GPU, Bench, make_pod, make_world

pytestmark = pytest.mark.unit

FILES = ("dcgm/default-counters.csv", "dcgm/dcp-metrics-included.csv")
NAMES = re.compile(r"\bDCGM_\w+")


def names(only_active: bool) -> set[str]:
    """Names in dcgm-exporter's own counter files."""
    lines = [line for file in FILES for line in reference(file).read_text().splitlines()]
    return set(NAMES.findall("\n".join(line for line in lines if not (only_active and line.startswith("#")))))


def test_every_name_is_one_of_the_exporters_own() -> None:
    assert names(only_active=False) >= KNOWN


def test_without_a_csv_the_exporter_serves_what_its_own_file_lists() -> None:
    assert {counter.name for counter in DEFAULT} == names(only_active=True)


def test_the_exporters_own_files_can_be_read() -> None:
    for file in FILES:
        result = counters.read(reference(file).read_text())
        assert {counter.name for counter in result} == {counter.name for counter in DEFAULT}


def test_what_an_environment_may_ask_for_is_taken() -> None:
    """Some fields have no series: only those in the exporter's own files are simulated."""
    text = "".join(f"{name}, {field.type}, {field.help}\n" for name, field in FIELDS.items())
    result = {counter.name for counter in counters.read(text)}
    assert result == KNOWN
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


def exporter(world: Any, csv: str, **fields: Any) -> Any:
    """The exporter's pod with a mounted csv; ``world`` knows what is wrong with it."""
    (pod,) = world.pods_of("dcgm-exporter")
    pod.template = replace(pod.template, config_map="counters")
    for name, value in fields.items():
        setattr(pod, name, value)
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
    pod = exporter(world, "DCGM_FI_NONSENSE, gauge, x\n", start=start)
    (crash,) = [action for action in operands.act(world) if isinstance(action, Crash)]
    assert (crash.pod, crash.container) == (pod, "dcgm-exporter")
    assert "DCGM_FI_NONSENSE" in crash.message
    pod.start, pod.crash = "granted", crash.message
    assert not any(isinstance(action, Crash) for action in operands.act(world))
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
    pod = exporter(world, "", start="waits", phase="Pending", ready=False)
    (event,) = (action for action in operands.act(world) if isinstance(action, Event))
    assert (event.reason, '"counters" not found' in event.message) == ("FailedMount", True)
    pod.start = "granted"  # mounted files stay
    assert config_error(pod, {}) is None


def test_a_scrape_has_what_the_csv_asks_for_in_its_order() -> None:
    csv = (
        "DCGM_FI_DEV_POWER_USAGE, gauge, watts\nDCGM_FI_DEV_GPU_TEMP, gauge, degrees\n"
        "DCGM_FI_DRIVER_VERSION, label, version\n"
    )
    bench = Bench(make_world())
    exporter(bench.world, csv)
    bench.store.config_maps |= maps(csv)
    watts, degrees = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP"
    heads = [
        *(f"# HELP {watts} watts", f"# TYPE {watts} gauge", watts),
        *(f"# HELP {degrees} degrees", f"# TYPE {degrees} gauge", degrees),
    ]
    assert [line.split("{")[0] for line in bench.scrape().text.splitlines()] == heads
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
    plain = {"pci_bus_id": "00000000:17:00.0", "device": "nvidia1", "modelName": "NVIDIA A100-SXM4-40GB"}
    assert series.of("GPU_TEMP")[1][0] == {
        **plain,
        "gpu": "1",
        "UUID": device_plugin.gpu_uuid(world, 1),
        "Hostname": "node-0",
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
    slice_ = device_plugin.mig_uuid(world, 1, "3g.20gb", 0)
    world.pods.append(
        make_pod("infer", asks={"nvidia.com/mig-3g.20gb": 1}, devices=slice_, load="0.8", held="9000")
    )
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


def test_nobody_answers_where_no_exporter_runs() -> None:
    bench = Bench(make_world())
    assert bench.exporters.scrape("nowhere") == (404, "there is no node nowhere\n")
    (pod,) = bench.world.pods_of("dcgm-exporter")
    pod.phase = "Pending"
    status, text = bench.exporters.scrape("node-0")
    assert (status, text) == (503, "node-0: no dcgm-exporter runs on this node\n")


def test_a_claimed_device_works_and_nobody_is_named() -> None:
    bench = Bench(make_world(gpu=A100, count=2, annotations=CUT))
    name = "gpu-1-mig-2g10gb-14-4"
    claims = [
        Claim("default", "whole", "node-0", ("gpu-0",), ("default/p",)),
        Claim("default", "slice", "node-0", (name,), ("default/p",)),
        Claim("default", "unused", "node-0", ("gpu-1-mig-1g5gb-19-6",), ()),
    ]
    bench.store.claimed._on_node["node-0"] = {(c.namespace, c.name): c for c in claims}
    result = bench.scrape().of("GR_ENGINE_ACTIVE")
    busy = [(labels.get("GPU_I_PROFILE"), value) for labels, value in result]
    assert busy == [(None, 0.5), ("3g.20gb", 0), ("2g.10gb", 0.5), ("1g.5gb", 0)]
    assert not any("pod" in labels for labels, _ in result)


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
