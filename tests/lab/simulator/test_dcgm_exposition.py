"""A scrape of a simulated node: series, labels and pods; promtool parses it, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from lab.simulator import device_plugin, keys
from lab.simulator.dcgm.fields import EXPORTER, KNOWN
from lab.simulator.dcgm.figures import FIGURES
from lab.simulator.dcgm.rows import instance_id
from lab.simulator.hardware import GPUS
from lab.toolchain import Toolchain
from tests.lab.simulator.scraping import START, Bench, Series, all_counters

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"
A100 = "20b0"
CUT = {keys.MIG_LAYOUT: json.dumps({"1": ["3g.20gb@0", "2g.10gb@4", "1g.5gb@6"]})}
NOT_ON_INSTANCES = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
    "DCGM_EXP_GPU_HEALTH_STATUS",
}


def everything(bench: Bench) -> Series:
    for pod in bench.world.of("dcgm-exporter"):
        pod.template = replace(pod.template, config_map="all")
    bench.store.config_maps["gpu-operator", "all"] = {"dcgm-metrics.csv": all_counters(*sorted(KNOWN))}
    return bench.scrape()


def test_labels_of_a_whole_gpu(make_world: Any) -> None:
    world = make_world(gpu=A100, count=2)
    series = Bench(world).scrape()
    assert [labels for labels, _ in series.of("GPU_TEMP")][1] == {
        "gpu": "1",
        "UUID": device_plugin.gpu_uuid(world, 1),
        "pci_bus_id": "00000000:17:00.0",
        "device": "nvidia1",
        "modelName": "NVIDIA A100-SXM4-40GB",
        "Hostname": "node-0",
        "DCGM_FI_DRIVER_VERSION": "595.91.07",
    }
    assert (
        series.of("XID_ERRORS")[0][0] | {"err_code": "0", "err_msg": "No Error"}
        == series.of("XID_ERRORS")[0][0]
    )


def test_a_pod_alone_on_a_gpu_is_named_and_others_are_not(make_world: Any, make_pod: Any) -> None:
    world = make_world(gpu=A100, count=3)
    ids = [device_plugin.gpu_uuid(world, n) for n in range(3)]
    world.pods += [
        make_pod("train", asks={GPU: 1}, devices=ids[0]),
        make_pod("shared-a", asks={f"{GPU}.shared": 1}, devices=f"{ids[1]}::0", load="0.2"),
        make_pod("shared-b", asks={f"{GPU}.shared": 1}, devices=f"{ids[1]}::3", load="0.3"),
    ]
    series = Bench(world).scrape()
    pods = [
        (labels.get("pod"), labels.get("namespace"), labels.get("container"))
        for labels, _ in series.of("GPU_UTIL")
    ]
    assert pods == [("train", "default", "c0"), (None, None, None), (None, None, None)]
    assert [value for _, value in series.of("GPU_UTIL")] == [50, 50, 0]


def test_a_cut_gpu_has_a_row_per_instance(make_world: Any, make_pod: Any) -> None:
    world = make_world(gpu=A100, count=2, annotations=CUT)
    slice_ = device_plugin.mig_uuid(world, 1, "3g.20gb", 0)
    world.pods.append(
        make_pod("infer", asks={"nvidia.com/mig-3g.20gb": 1}, devices=slice_, load="0.8", held="9000")
    )
    series = everything(Bench(world))
    rows = series.of("GR_ENGINE_ACTIVE", gpu="1")
    assert [
        (labels["GPU_I_PROFILE"], labels["GPU_I_ID"], labels.get("pod"), value) for labels, value in rows
    ] == [
        ("3g.20gb", "1", "infer", 0.8),
        ("2g.10gb", "5", None, 0.0),
        ("1g.5gb", "13", None, 0.0),
    ]
    used = {labels["GPU_I_PROFILE"]: value for labels, value in series.of("FB_USED", gpu="1")}
    assert used == {"3g.20gb": 9000, "2g.10gb": 0, "1g.5gb": 0}
    whole = {name for name, labels, _ in series.samples if labels["gpu"] == "0"}
    instance = {name for name, labels, _ in series.samples if labels["gpu"] == "1"}
    assert whole - instance == NOT_ON_INSTANCES
    # Each instance repeats its GPU's values: a sum of power over instances counts it three times.
    watts = {value for _, value in series.of("POWER_USAGE", gpu="1")}
    assert watts == {50 + 350 * 0.8 * 3 / 7}


def test_a_gpu_with_mig_on_and_no_instance_has_a_row_of_its_own(make_world: Any) -> None:
    series = Bench(make_world(gpu=A100, annotations={keys.MIG_LAYOUT: '{"0": []}'})).scrape()
    assert "GPU_I_ID" not in series.of("GPU_TEMP")[0][0]


def test_instances_are_numbered_as_by_the_driver() -> None:
    mig = GPUS[A100].mig
    assert mig is not None
    numbers = [("7g.40gb", 0, 0), ("4g.20gb", 0, 1), ("3g.20gb", 4, 2), ("2g.10gb", 2, 4), ("1g.5gb", 6, 13)]
    assert all(instance_id(mig, profile, start) == number for profile, start, number in numbers)


def test_every_model_has_figures_and_no_series_that_it_cannot_have(make_world: Any) -> None:
    assert FIGURES.keys() == GPUS.keys()
    t4 = everything(Bench(make_world(gpu="1eb8"))).names
    assert not any("NVLINK" in name or "ROW" in name or "MEMORY_TEMP" in name for name in t4)
    assert "DCGM_FI_DEV_RETIRED_DBE" in t4
    a100 = everything(Bench(make_world(gpu=A100))).names
    assert "DCGM_FI_DEV_RETIRED_DBE" not in a100
    labels = {name for name in KNOWN if name.endswith(("_VER", "_VERSION", "_BRAND", "_SERIAL"))}
    retired = {name for name in KNOWN if "RETIRED" in name}
    assert a100 == KNOWN - labels - retired - {"DCGM_EXP_P2P_STATUS"}


def test_nobody_answers_where_no_exporter_runs(make_world: Any) -> None:
    bench = Bench(make_world())
    assert bench.exporters.scrape("nowhere") == (404, "there is no node nowhere\n")
    (pod,) = bench.world.of("dcgm-exporter")
    pod.phase = "Pending"
    status, text = bench.exporters.scrape("node-0")
    assert (status, text) == (503, "node-0: no dcgm-exporter runs on this node\n")


def test_a_claimed_device_works_and_nobody_is_named(make_world: Any) -> None:
    from lab.simulator.claimed import Claim

    bench = Bench(make_world(gpu=A100, count=2, annotations=CUT))
    name = "gpu-1-mig-2g10gb-14-4"
    claims = [
        Claim("default", "whole", "node-0", ("gpu-0",), ("default/p",)),
        Claim("default", "slice", "node-0", (name,), ("default/p",)),
        Claim("default", "unused", "node-0", ("gpu-1-mig-1g5gb-19-6",), ()),
    ]
    bench.store.claimed._on_node["node-0"] = {(c.namespace, c.name): c for c in claims}
    found = bench.scrape().of("GR_ENGINE_ACTIVE")
    assert [(labels.get("GPU_I_PROFILE"), value) for labels, value in found] == [
        (None, 0.5),
        ("3g.20gb", 0.0),
        ("2g.10gb", 0.5),
        ("1g.5gb", 0.0),
    ]
    assert not any("pod" in labels for labels, _ in found)


def _promtool() -> str | None:
    """promtool of the toolchain, else of $PROMTOOL, else of the system."""
    built = Toolchain(Paths.here()).locate("promtool").path
    return str(built) if built else os.environ.get("PROMTOOL") or shutil.which("promtool")


def test_what_is_written_can_be_parsed(make_world: Any, make_pod: Any) -> None:
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


def test_a_node_of_eight_gpus_is_worked_out_in_milliseconds(make_world: Any) -> None:
    """1000 nodes every 15 seconds are 67 a second, all served by one process."""
    bench = Bench(make_world(gpu=A100, count=8))
    bench.scrape()
    began = time.process_time()
    for _ in range(20):
        bench.scrape(after=15)
    assert (time.process_time() - began) / 20 < 0.015
    assert bench.now == START + 300
