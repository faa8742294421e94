"""Rehearsals as a user runs them: placed and pending pods, what is left afterwards, and after a kill."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lab.plane.layout import Layout
from lab.plane.processes import Process, scan
from tests.journey.conftest import HERE, Checkout, make_checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine]


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = make_checkout(tmp_path)
    yield made
    for stack in ("local", "onprem-dev", "aws-dev", "aws-prod"):
        assert not running(made, stack)
    assert not made.running(), "a rehearsal leaves the checkout's own control plane alone"


def running(checkout: Checkout, stack: str) -> list[Process]:
    return list(scan(Layout(replace(checkout.paths, state=checkout.paths.state / "rehearse" / stack))))


WORK = [
    {"name": "slices", "kind": "deployment", "replicas": 3, "pool": "a100-mig", "slice": "2g.10gb"},
    {"name": "shares", "kind": "deployment", "replicas": 3, "pool": "t4-shared"},
    {"name": "more", "kind": "job", "pool": "t4-shared"},  # four shares of three: a job waits for its turn
    {"name": "once", "kind": "job", "parallelism": 2, "pool": "cpu"},
]


@pytest.mark.nightly
def test_own_hosts_are_asked_what_they_would_hold(checkout: Checkout, tmp_path: Path) -> None:
    root = checkout.paths.root
    shutil.copy(HERE.root / "Pulumi.onprem-dev.yaml", root)
    file, page = tmp_path / "work.yaml", tmp_path / "page.html"
    work = [{**item, "namespace": "lab", "image": "x:1"} for item in WORK]
    file.write_text(yaml.safe_dump({"workloads": work}))
    requests = ["rehearse", "onprem-dev", "--json", "--workloads", str(file), "--report", str(page)]
    document = json.loads(checkout.gpuform(*requests, code=1).stdout)

    assert (document["pods"]["wanted"], document["pods"]["placed"]) == (9, 8)
    (waits,) = document["pods"]["pending"]
    assert waits["workload"] in ("shares", "more")
    assert waits["pool"] == "t4-shared"
    assert waits["why"] == "0 of 6 nodes fit: 1 has insufficient gpu, 5 are not in its pool"
    assert waits["said"][0].startswith("default-scheduler: 0/6 nodes are available: ")
    pools = {pool["name"]: pool for pool in document["pools"]}
    assert pools["t4-shared"]["resources"] == {"nvidia.com/gpu": {"offers": 3, "used": 3, "idle": 0}}
    assert pools["a100-mig"]["resources"]["nvidia.com/mig-2g.10gb"] == {"offers": 8, "used": 3, "idle": 5}
    nodes = {node["name"]: node for node in document["nodes"]}
    assert set(nodes) == {"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "cpu-1"}
    assert [len(gpu) for gpu in nodes["gpu-1"]["gpus"]] == [5, 5]
    cells = [cell for name in ("gpu-1", "gpu-2") for gpu in nodes[name]["gpus"] for cell in gpu]
    assert sum(cell["pod"] is not None for cell in cells) == 3
    assert all(cell["resource"] == "mig-2g.10gb" for cell in cells if cell["pod"])
    assert len(nodes["cpu-1"]["others"]) == 2, "a job's pods do not end before they are counted"
    assert document["shrink"]["after"]["pods"] == 3
    assert document["shrink"]["gone"] == []
    assert document["troubles"] == []
    assert any("not declared" in text for text in document["simulated"])
    assert "gpu-1" in page.read_text()

    left = {item.name for item in (checkout.paths.state / "rehearse").iterdir()}
    assert left == {"onprem-dev.logs", "onprem-dev.lock"}, "its state is gone, its logs stay"
    assert (root / "Pulumi.onprem-dev.yaml").read_bytes() == (
        HERE.root / "Pulumi.onprem-dev.yaml"
    ).read_bytes()


@pytest.mark.nightly
def test_what_a_killed_one_left_is_ended_by_the_next(checkout: Checkout) -> None:
    first = subprocess.Popen(
        checkout.command("rehearse", "local"),
        env=checkout.env,
        cwd=checkout.paths.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: {item.name for item in running(checkout, "local")}, lambda names: "simulator" in names, 60)
    left = {item.pid for item in running(checkout, "local")}
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert len(left) >= 6

    output = checkout.gpuform("rehearse", "local", "--no-shrink").stdout
    assert "local: 9 of 9 pods placed, 9 nodes, 34.03 USD an hour\n" in output
    assert "pending" not in output
    assert (checkout.paths.state / "rehearse" / "local.html").is_file()
    assert not [pid for pid in left if (Path("/proc") / str(pid) / "exe").exists()]


def test_the_real_karpenter_buys_two_nodes_for_four_pods_of_three_shares(checkout: Checkout) -> None:
    shutil.copy(HERE.root / "Pulumi.aws-dev.yaml", checkout.paths.root)
    document = json.loads(checkout.gpuform("rehearse", "aws-dev", "--json", "--no-shrink").stdout)
    assert (document["karpenter"], document["failed"]) == ("aws", False)
    assert (document["pods"]["wanted"], document["pods"]["placed"]) == (4, 4)
    pool = next(pool for pool in document["pools"] if pool["name"] == "g4dn-shared")
    assert pool["resources"]["nvidia.com/gpu.shared"] == {"offers": 6, "used": 4, "idle": 2}
    assert {machine["machine"] for machine in pool["machines"]} == {"g4dn.xlarge"}
    assert {machine["capacity"] for machine in pool["machines"]} == {"on-demand"}
    assert (pool["launched"], pool["in_vain"], pool["usd_per_hour"]) == (2, [], 1.052)
    assert pool["idle_usd_per_hour"] == pytest.approx(1.052 / 3, abs=1e-3)
    lives = [line for line in document["timeline"] if not line["fixed"]]
    assert all(line["ready"] > line["begin"] for line in lives), "held back until the operands have acted"
    assert document["rss_bytes"]["karpenter"] > 0


@pytest.mark.nightly
def test_training_gets_adapters_and_huge_pages_and_runs_to_its_end(checkout: Checkout) -> None:
    shutil.copy(HERE.root / "Pulumi.aws-prod.yaml", checkout.paths.root)
    document = json.loads(checkout.gpuform("rehearse", "aws-prod", "--json", "--no-shrink").stdout)
    assert (document["karpenter"], document["failed"]) == ("aws", False)
    done = {"namespace": "science", "name": "training", "succeeded": 2, "completions": 2}
    assert document["jobs"] == [done]
    pool = next(pool for pool in document["pools"] if pool["name"] == "h100-training")
    assert pool["resources"]["vpc.amazonaws.com/efa"] == {"offers": 64, "used": 64, "idle": 0}
    assert pool["resources"]["hugepages-2Mi"] == {"offers": 20, "used": 10, "idle": 10}


@pytest.mark.nightly
def test_karpenter_buys_for_what_a_queue_admits_and_a_job_that_waits_is_next(checkout: Checkout) -> None:
    content = yaml.safe_load((HERE.root / "Pulumi.aws-dev.yaml").read_text())
    environment = content["config"]["gpuform:environment"]
    names = ("science", "arts")
    teams = [{"name": name, "namespaces": [name], "quota": {"g4dn-shared": 3}} for name in names]
    works = [
        {"name": name, "namespace": team, "queue": team, "pool": "g4dn-shared", "image": "x:1", **kind}
        for team, kind in zip(names, ({"kind": "job", "parallelism": 3}, {"kind": "pod"}), strict=True)
        for name in ("a", "b", "c", "d")[: 2 if team == "science" else 4]
    ]
    environment |= {"queues": {"teams": teams}, "workloads": works, "monitoring": None}
    (checkout.paths.root / "Pulumi.aws-dev.yaml").write_text(yaml.safe_dump(content))
    document = json.loads(checkout.gpuform("rehearse", "aws-dev", "--json", "--no-shrink", code=1).stdout)

    science, arts = document["queues"]
    first, second = [
        {turn["what"]: turn["at"] for turn in workload["turns"]} for workload in science["workloads"]
    ]
    assert first["admitted"] < first["finished"] <= second["admitted"] < second["finished"]
    assert [job["succeeded"] for job in document["jobs"]] == [3, 3]
    (waits,) = document["pods"]["pending"]
    assert (waits["queue"], waits["name"], waits["said"]) == ("arts", arts["workloads"][-1]["name"], [])
    assert waits["why"] == f"waits in queue arts: {arts['workloads'][-1]['waits']}"
    assert "insufficient unused quota for nvidia.com/gpu.shared in flavor g4dn-shared" in waits["why"]
    assert (document["pods"]["wanted"], document["pods"]["placed"], document["troubles"]) == (10, 9, [])
    assert sum(line["pool"] == "g4dn-shared" for line in document["timeline"]) == 2, "none for what waits"
    assert [queue["usd_per_hour"] for queue in document["queues"]] == [0.526, 0.526]
    assert [queue["usage"][0]["used"] for queue in document["queues"]] == [3, 3]


@pytest.mark.nightly
def test_the_real_karpenter_counts_what_daemon_sets_request(checkout: Checkout, tmp_path: Path) -> None:
    """karpenter-provider-aws#6884: 3.75 of a g4dn.xlarge's 3.92 cores are not free beside 195m of theirs."""
    stack = (HERE.root / "Pulumi.aws-dev.yaml").read_text()
    assert "        machine: g4dn.xlarge" in stack
    stack = stack.replace("        machine: g4dn.xlarge", "        gpu: {models: [T4], count: 1}")
    (checkout.paths.root / "Pulumi.aws-dev.yaml").write_text(stack)
    file = tmp_path / "work.yaml"
    work = {"name": "w", "kind": "deployment", "pool": "g4dn-shared", "image": "x:1", "cpu": 3.75}
    file.write_text(yaml.safe_dump({"workloads": [work]}))
    requests = ["rehearse", "aws-dev", "--json", "--no-shrink", "--workloads", str(file)]
    document = json.loads(checkout.gpuform(*requests).stdout)
    pool = next(pool for pool in document["pools"] if pool["name"] == "g4dn-shared")
    assert [machine["machine"] for machine in pool["machines"]] == ["g4dn.2xlarge"]
