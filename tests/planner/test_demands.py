"""Files of demands: what is read, and what is refused with place, fact and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.config import load
from infra.model.base.errors import InputError
from infra.model.base.prices import PriceList
from infra.planner import demands
from infra.planner.candidates import candidates_of
from infra.planner.need import Need
from infra.planner.plan import make_plan

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def write(folder: Path, text: str, name: str = "d.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def plan(file: Path) -> None:
    given = demands.read(file)
    needs = demands.needs_of(None, given.demands, file.parent)
    make_plan(None, needs, candidates_of(None, given.machines, PriceList()))


def test_a_csv_is_the_same_as_yaml(tmp_path: Path) -> None:
    yaml = write(
        tmp_path,
        "demands: [{name: a/b, replicas: 3, gpu_memory: 4Gi, compute: 0.25, class: interactive, "
        "unbounded: true, models: [T4, A100-40GB], cpu: 2, memory: 8Gi, efa: 2, hugepages: 6Mi, "
        "interruptible: true}, {name: c, count: 2}]",
    )
    csv = write(
        tmp_path,
        "name,replicas,gpu_memory,compute,class,unbounded,models,cpu,memory,count,efa,hugepages,interruptible\n"
        "a/b,3,4Gi,0.25,interactive,true,T4 A100-40GB,2,8Gi,,2,6Mi,true\nc,,,,,,,,,2,,,\n",
        "d.csv",
    )
    read = [demands.needs_of(None, demands.read(file).demands, tmp_path) for file in (yaml, csv)]
    assert read[0] == read[1]
    assert read[0][0] == Need(
        "a/b",
        3,
        4096,
        0.25,
        True,
        "interactive",
        "",
        frozenset({"T4", "A100-PCIE-40GB"}),
        1,
        2000,
        8192,
        2,
        6,
        True,
    )
    assert (read[0][1].count, read[0][1].compute) == (2, 1.0)


def test_a_stacks_workload_needs_what_it_is_guaranteed_unless_a_demand_says_otherwise(tmp_path: Path) -> None:
    env = load(ROOT / "Pulumi.aws-prod.yaml")
    file = write(tmp_path, "demands: [{name: services/inference, gpu_memory: 3Gi}, {name: new, count: 1}]")
    needs = {need.name: need for need in demands.needs_of(env, demands.read(file).demands, tmp_path)}
    simulation, inference = needs["science/simulation"], needs["services/inference"]
    assert (simulation.memory_mib, simulation.replicas, simulation.pools) == (19968, 4, ("a100-mig",))
    assert (inference.memory_mib, inference.workload_class, inference.replicas) == (3072, "low_priority", 6)
    assert (inference.cpu, inference.pools, inference.models) == (2000, None, {"L40S"})
    assert (needs["new"].count, needs["new"].pools) == (1, None)
    assert (needs["science/training"].efa, needs["science/training"].huge_mib) == (32, 5120)


def test_a_stack_without_workloads_says_what_to_give() -> None:
    env = load(ROOT / "Pulumi.onprem-dev.yaml")
    with pytest.raises(InputError, match=r"no workload requests a GPU .* give a file of demands"):
        make_plan(env, demands.needs_of(env, (), ROOT), candidates_of(env, (), PriceList()))


HEAD = "machines: [A100-SXM4-40GB]\ndemands:\n  - "
SERVES = "{name: a, serves: {rate: 9, latency_ms: 100, measured: m.csv}}"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "holds nothing; it must hold keys: demands"),
        ("demands: []", "demands: is empty; give at least one"),
        (HEAD + "{name: a, gpu_memory: 80Gi}", "40.0 GiB of GPU memory, and it needs 80.0 GiB"),
        (
            HEAD + "{name: a, count: 2}",
            "a: no node can serve it; A100-SXM4-40GB: a pod needs 2 GPUs, and it has 1",
        ),
        (
            "machines: [g6e.2xlarge, p4d.24xlarge]\ndemands: [{name: a, count: 8, efa: 5}]",
            "a pod needs 5 adapters (EFA), and it has 4; set aws.efa of a pool",
        ),
        (
            "machines: [p4d.24xlarge]\ndemands: [{name: a, count: 8, hugepages: 5Gi}]",
            "a pod needs 5120 MiB in huge pages, and it has 0; set hugepages of a pool",
        ),
        (HEAD + "{name: a}", "a: neither gpu_memory nor count nor serves is given"),
        (
            HEAD + "{name: a, gpu_memory: 4Gi, compute: 1.5}",
            '3:32: demands[0] "a": compute: 1.5 is too large; use 1',
        ),
        (HEAD + "{name: a, gpu_memory: 4Gi, clas: latency}", "clas: unknown key; did you mean class?"),
        (HEAD + "{name: a, gpu_memory: 4Gi, models: [A10000]}", "models[0]: unknown GPU 'A10000'; known:"),
        ("machines: [p4d.24xlarg]\ndemands: [{name: a, count: 1}]", "did you mean p4d.24xlarge?"),
        (
            "machines: [{machine: T4, capacity: spot}]\ndemands: [{name: a, count: 1}]",
            "T4 spot: its nodes are spot, and the demand is not interruptible; set interruptible,",
        ),
        ("machines: [T4, {machine: T4}]\ndemands: [{name: a, count: 1}]", "machines[1]: T4 is given twice"),
        (
            "machines: [{machine: T4, capacity: reserved}]\ndemands: [{name: a, count: 1}]",
            "machines[0].capacity: 'reserved' is not known",
        ),
        (
            "machines: [{machine: T4, usd_per_hour: -1}]\ndemands: [{name: a, count: 1}]",
            "machines[0].usd_per_hour: -1 is too small; use 0",
        ),
        ("machines: [m6i.xlarge]\ndemands: [{name: a, count: 1}]", "machines[0]: m6i.xlarge has no GPU"),
        ("demands: [{name: a, count: 1}]", "machines: neither a pool with GPUs nor a machine is given"),
        (
            HEAD + "{name: a, count: 1, trust: x}\n  - {name: a, count: 1, trust: y}",
            "a is given twice, once with trust x, once y",
        ),
        (
            HEAD + "{name: a, serves: {rate: -1, latency_ms: 9, measured: m}}",
            "serves.rate: -1 is too small; use more than 0",
        ),
        (HEAD + "{name: a, replicas: 2, " + SERVES[10:], "replicas: serves is given too"),
    ],
)
def test_bad_demands_are_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(write(tmp_path, text))
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("measured", "error"),
    [
        ("part,batch\n", "has no column processes; give the columns part, batch"),
        ("part,batch,processes,throughput,latency_ms\n", "holds no measurement"),
        ("part,batch,processes,throughput,latency_ms\nwhole,1,1,-5,20\n", "m.csv:2: throughput: '-5' is not"),
        (
            "part,batch,processes,throughput,latency_ms\nwhole,1,1,5,60\n",
            "a.serves.latency_ms: 100 ms is less than twice the fastest batch, 60 ms",
        ),
    ],
)
def test_bad_measurements_are_refused(tmp_path: Path, measured: str, error: str) -> None:
    write(tmp_path, measured, "m.csv")
    with pytest.raises(InputError) as caught:
        plan(write(tmp_path, HEAD + SERVES))
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ("name,count\n", "holds no demand"),
        ("name,count\na,1,2\n", "d.csv:2: has more values than the header"),
    ],
)
def test_bad_rows_are_refused(tmp_path: Path, rows: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        demands.read(write(tmp_path, rows, "d.csv"))
    assert error in str(caught.value)
