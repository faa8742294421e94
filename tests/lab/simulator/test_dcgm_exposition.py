"""A scrape of a simulated node: series, labels, pods, and the server; promtool parses it, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from gpuform.checkout.paths import Paths
from lab.simulator import device_plugin, keys
from lab.simulator.claimed import Claim
from lab.simulator.dcgm.counters import EXPORTER, KNOWN
from lab.simulator.dcgm.exporter import Server
from lab.simulator.dcgm.rows import instance_id
from lab.simulator.hardware import GPUS
from lab.toolchain import Toolchain
from tests.lab.simulator.scraping import START, Bench, Series, all_counters
from tests.lab.simulator.worlds import make_pod, make_world

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"
A100 = "20b0"
CUT = {keys.MIG_LAYOUT: json.dumps({"1": ["3g.20gb@0", "2g.10gb@4", "1g.5gb@6"]})}
UTILS = {f"DCGM_FI_DEV_{kind}_UTIL" for kind in ("GPU", "MEM_COPY", "ENC", "DEC")}
BYTES = {f"DCGM_FI_PROF_PCIE_{way}_BYTES" for way in ("TX", "RX")}
NOT_ON_INSTANCES = UTILS | BYTES | {"DCGM_EXP_GPU_HEALTH_STATUS"}


def everything(bench: Bench) -> Series:
    for pod in bench.world.of("dcgm-exporter"):
        pod.template = replace(pod.template, config_map="all")
    bench.store.config_maps["gpu-operator", "all"] = {"dcgm-metrics.csv": all_counters(*sorted(KNOWN))}
    return bench.scrape()


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
    series = everything(Bench(world))
    rows = series.of("GR_ENGINE_ACTIVE", gpu="1")
    found = [(row["GPU_I_PROFILE"], row["GPU_I_ID"], row.get("pod"), value) for row, value in rows]
    assert found == [("3g.20gb", "1", "infer", 0.8), ("2g.10gb", "5", None, 0), ("1g.5gb", "13", None, 0)]
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


def test_instances_are_numbered_as_by_the_driver() -> None:
    mig = GPUS[A100].mig
    assert mig is not None
    numbers = [("7g.40gb", 0, 0), ("4g.20gb", 0, 1), ("3g.20gb", 4, 2), ("2g.10gb", 2, 4), ("1g.5gb", 6, 13)]
    assert all(instance_id(mig, profile, start) == number for profile, start, number in numbers)


def test_no_model_has_series_that_it_cannot_have() -> None:
    t4 = everything(Bench(make_world(gpu="1eb8"))).names
    assert not any("NVLINK" in name or "ROW" in name or "MEMORY_TEMP" in name for name in t4)
    assert "DCGM_FI_DEV_RETIRED_DBE" in t4
    a100 = everything(Bench(make_world(gpu=A100))).names
    assert "DCGM_FI_DEV_RETIRED_DBE" not in a100
    labels = {name for name in KNOWN if name.endswith(("_VER", "_VERSION", "_BRAND", "_SERIAL"))}
    retired = {name for name in KNOWN if "RETIRED" in name}
    assert a100 == KNOWN - labels - retired - {"DCGM_EXP_P2P_STATUS"}


def test_nobody_answers_where_no_exporter_runs() -> None:
    bench = Bench(make_world())
    assert bench.exporters.scrape("nowhere") == (404, "there is no node nowhere\n")
    (pod,) = bench.world.of("dcgm-exporter")
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
    found = bench.scrape().of("GR_ENGINE_ACTIVE")
    busy = [(labels.get("GPU_I_PROFILE"), value) for labels, value in found]
    assert busy == [(None, 0.5), ("3g.20gb", 0), ("2g.10gb", 0.5), ("1g.5gb", 0)]
    assert not any("pod" in labels for labels, _ in found)


def _promtool() -> str | None:
    """promtool of the toolchain, else of $PROMTOOL, else of the system."""
    built = Toolchain(Paths.here()).locate("promtool").path
    return str(built) if built else os.environ.get("PROMTOOL") or shutil.which("promtool")


def test_what_is_written_can_be_parsed() -> None:
    promtool = _promtool()
    if promtool is None:
        pytest.skip("promtool is not here")
    world = make_world(gpu=A100, count=2, annotations=CUT)
    world.pods.append(make_pod("p", asks={GPU: 1}, devices=device_plugin.gpu_uuid(world, 0)))
    text = everything(Bench(world)).text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    # Lint also complains about NVIDIA's names; those are not format errors.
    assert "error while linting" not in done.stderr, done.stderr
    assert "parsing error" not in done.stderr, done.stderr
    assert EXPORTER & Series(text).names


def test_a_node_of_eight_gpus_is_worked_out_in_milliseconds() -> None:
    """1000 nodes every 15 seconds are 67 a second, all served by one process."""
    bench = Bench(make_world(gpu=A100, count=8))
    bench.scrape()
    began = time.process_time()
    for _ in range(20):
        bench.scrape(after=15)
    assert (time.process_time() - began) / 20 < 0.015
    assert bench.now == START + 300


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
