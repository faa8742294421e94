"""``gpuform simulate fault``: what it writes and prints, and refusals that change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import InputError
from gpuform.cli.main import app
from lab.plane import gpu_faults as faulting
from lab.plane.gpu_faults import FaultRequest
from lab.simulator import keys
from lab.simulator.faults import KINDS, Fault, parse, render

pytestmark = pytest.mark.unit

NOW = 1_800_000_000.0


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
        return parse(self.nodes[node].get(keys.FAULTS, "[]"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("lab.plane.gpu_faults.Api", made)
    return made


@pytest.fixture
def do(tmp_path: Path) -> Any:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()

    def run(node: str, *kinds: str, now: float = NOW, **fields: Any) -> list[str]:
        return asyncio.run(faulting.change_fault(kubeconfig, FaultRequest(node, kinds=kinds, **fields), now))

    return run


def test_faults_are_written_and_cleared_by_gpu(cluster: Cluster, do: Any) -> None:
    removed = "the device plugin removes the GPU from allocatable, and its series are gone"
    fallen = f"XID 79 (GPU has fallen off the bus): {removed}"
    assert do("a100-0", xid=79, gpu=1) == [f"a100-0: GPU 1: {fallen}"]
    page = "XID 31 (GPU memory page fault): the device plugin ignores it"
    assert do("a100-0", xid=31) == [f"a100-0: GPU 0: {page}"]
    hot = "its cooling has failed: it is hot, and throttled"
    assert do("a100-0", "thermal", gpu=1) == [f"a100-0: GPU 1: {hot}"]
    assert do("a100-0", "exporter-down") == ["a100-0: dcgm-exporter crash-loops"]
    assert {(fault.kind, fault.gpu, fault.xid, fault.since) for fault in cluster.of("a100-0")} == {
        ("xid", 1, 79, NOW),
        ("xid", 0, 31, NOW),
        ("thermal", 1, 0, NOW),
        ("exporter-down", -1, 0, NOW),
    }
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
    assert do("a100-0", "ecc", now=NOW + 9) == ["a100-0: GPU 0: already has this fault"]
    do("a100-0", xid=13)
    do("a100-0", xid=13, now=NOW + 9)
    assert [(fault.kind, fault.since) for fault in cluster.of("a100-0")] == [
        ("ecc", NOW),
        ("xid", NOW),
        ("xid", NOW + 9),
    ]


def test_a_fabric_manager_is_the_nodes(cluster: Cluster, do: Any) -> None:
    (output,) = do("dgx-0", "fabric-manager")
    assert output.startswith("dgx-0: its fabric manager does not run")
    assert cluster.of("dgx-0") == (Fault("fabric-manager", -1, NOW),)
    assert do("dgx-0", "fabric-manager") == ["dgx-0: already has this fault"]


def test_the_annotation_does_not_grow_for_ever(cluster: Cluster, do: Any) -> None:
    old = [Fault("thermal", 0, NOW), *(Fault("xid", 0, NOW + n, 79) for n in range(300))]
    text = render([*old, Fault("xid", 0, NOW, 13)])
    assert text is not None
    cluster.nodes["a100-0"][keys.FAULTS] = text
    do("a100-0", xid=13, now=NOW + 4000)
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


FLAGS = [kind for kind in KINDS if kind != "xid"]


def test_nvidia_three_gpus_one_unhealthy(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").touch()
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path))

    def said(*more: str) -> str:
        done = CliRunner().invoke(app, ["simulate", "health", "a100-0", "--gpu", "2", *more])
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


@pytest.mark.parametrize("kind", FLAGS)
def test_each_flag_is_its_fault(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "kubeconfig").touch()
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path))
    done = CliRunner().invoke(app, ["simulate", "fault", "dgx-0", f"--{kind}"])
    assert done.exit_code == 0, done.output
    assert [fault.kind for fault in cluster.of("dgx-0")] == [kind]
    both = CliRunner().invoke(app, ["simulate", "fault", "dgx-0", f"--{kind}", "--xid", "13"])
    assert (both.exit_code, cluster.patches) == (2, 1)
