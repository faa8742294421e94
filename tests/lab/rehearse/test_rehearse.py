"""Rehearsals as a user runs them: placed and pending pods, requests, what is left, and after a kill."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.plane.layout import Layout
from lab.plane.processes import Process, scan
from tests.build.aws_stacks import stack
from tests.build.clusters import node, pod
from tests.journey.conftest import Checkout, make_checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine]
KINDS = Path(__file__).parents[2] / "manifests" / "kinds.yaml"
Json = dict[str, Any]


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = make_checkout(tmp_path)
    yield made
    for name in ("local", "onprem-dev", "aws-dev", "aws-prod"):
        assert not running(made, name)
    assert not made.running(), "a rehearsal leaves the checkout's own control plane alone"


def running(checkout: Checkout, stack: str) -> list[Process]:
    return list(scan(Layout(replace(checkout.paths, state=checkout.paths.state / "rehearse" / stack))))


def write(checkout: Checkout, name: str, env: Json | None = None) -> None:
    file = checkout.paths.root / f"Pulumi.{name}.yaml"
    file.write_text(yaml.safe_dump({"config": {"gpuform:environment": env or stack(name)}}))


def rehearse(
    checkout: Checkout, name: str, *options: str, env: Json | None = None, code: int = 0
) -> tuple[Json, dict[str, Json]]:
    """The document of a shipped stack, or of this environment; and its pools by name."""
    write(checkout, name, env)
    command = ("rehearse", name, "--json", *options)
    document = json.loads(checkout.gpuform(*command, code=code, patience_s=900).stdout)
    return document, {pool["name"]: pool for pool in document["pools"]}


def workloads(folder: Path, *work: Json) -> str:
    file = folder / "work.yaml"
    file.write_text(
        yaml.safe_dump({"workloads": [{"namespace": "lab", "image": "x:1", **item} for item in work]})
    )
    return str(file)


@pytest.mark.nightly
def test_what_runs_now_is_asked_whether_it_still_fits(checkout: Checkout, tmp_path: Path) -> None:
    tags = {"rack": "7", "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB", "nvidia.com/gpu.count": "1"}
    nodes = [node(name, tags) for name in ("gpu-1", "gpu-2")]
    control = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    nodes.append(node("control", {}, taints=[control]))
    free = {"tolerations": [{"operator": "Exists"}]}
    slice_, half = ({"limits": {f"nvidia.com/mig-{name}": "1"}} for name in ("1g.5gb", "3g.20gb"))
    pods = [pod(f"serve-{n}", "gpu-1", ("ReplicaSet", "serve"), resources=slice_, **free) for n in range(5)]
    pods += [pod("trainer", "gpu-2", resources=half, **free), pod("web", "control", **free)]
    file = tmp_path / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}))
    work = {
        "name": "w",
        "kind": "deployment",
        "pool": "a100",
        "slice": "1g.5gb",
        "image": "a:1",
        "replicas": 2,
    }
    env = {
        "name": "there",
        "cluster": {"kind": "existing", "kubeconfig": "/nowhere"},
        "pools": [
            {
                "name": "a100",
                "gpu": {"models": ["A100-40GB"], "count": 1},
                "selector": {"rack": "7"},
                "sharing": {"kind": "mig", "layout": "all-1g.5gb"},
            }
        ],
        "workloads": [work],
    }
    document, pools = rehearse(checkout, "there", "--from", str(file), env=env, code=1)
    assert pools["a100"]["machines"][0]["count"] == 2
    placed = document["pods"]
    assert (placed["wanted"], placed["placed"]) == (9, 8)
    (waiting,) = placed["pending"]
    assert waiting["workload"] == "trainer"
    assert "have insufficient mig-3g.20gb" in waiting["why"]
    hashed, _ = rehearse(
        checkout, "there", "--from", str(file), "--hash-names", "--no-shrink", env=env, code=1
    )
    assert not [name for name in ("trainer", "serve-", "gpu-1") if name in json.dumps(hashed)]


@pytest.mark.nightly
def test_own_hosts_are_asked_what_they_would_hold(checkout: Checkout, tmp_path: Path) -> None:
    root, page = checkout.paths.root, tmp_path / "page.html"
    work = workloads(
        tmp_path,
        {"name": "slices", "kind": "deployment", "replicas": 3, "pool": "a100-mig", "slice": "2g.10gb"},
        {"name": "shares", "kind": "deployment", "replicas": 3, "pool": "t4-shared"},
        {
            "name": "more",
            "kind": "job",
            "pool": "t4-shared",
        },  # four shares of three: a job waits for its turn
        {"name": "once", "kind": "job", "parallelism": 2, "pool": "cpu"},
    )
    options = ("--workloads", work, "--report", str(page))
    document, pools = rehearse(checkout, "onprem-dev", *options, code=1)

    assert (document["pods"]["wanted"], document["pods"]["placed"]) == (9, 8)
    (waits,) = document["pods"]["pending"]
    assert waits["workload"] in ("shares", "more")
    assert waits["pool"] == "t4-shared"
    assert waits["why"] == "0 of 6 nodes fit: 1 has insufficient gpu, 5 are not in its pool"
    assert waits["said"][0].startswith("default-scheduler: 0/6 nodes are available: ")
    assert pools["t4-shared"]["resources"] == {"nvidia.com/gpu": {"offers": 3, "used": 3, "idle": 0}}
    assert pools["a100-mig"]["resources"]["nvidia.com/mig-2g.10gb"] == {"offers": 8, "used": 3, "idle": 5}
    nodes = {node["name"]: node for node in document["nodes"]}
    assert set(nodes) == {"gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5", "cpu-1"}
    assert [len(gpu) for gpu in nodes["gpu-1"]["gpus"]] == [5, 5]
    cells = [cell for name in ("gpu-1", "gpu-2") for gpu in nodes[name]["gpus"] for cell in gpu]
    assert [cell["resource"] for cell in cells if cell["pod"]] == ["mig-2g.10gb"] * 3
    assert len(nodes["cpu-1"]["others"]) == 2, "a job's pods do not end before they are counted"
    assert document["shrink"]["after"]["pods"] == 3
    assert (document["shrink"]["gone"], document["troubles"]) == ([], [])
    assert any("not declared" in text for text in document["simulated"])
    assert "gpu-1" in page.read_text()

    left = {item.name for item in (checkout.paths.state / "rehearse").iterdir()}
    assert left == {"onprem-dev.logs", "onprem-dev.lock"}, "its state is gone, its logs stay"
    content = yaml.safe_load((root / "Pulumi.onprem-dev.yaml").read_text())
    assert content == {"config": {"gpuform:environment": stack("onprem-dev")}}


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
    first.kill()
    first.wait()
    assert len(left) >= 6

    output = checkout.gpuform("rehearse", "local", "--no-shrink").stdout
    assert "local: 9 of 9 pods placed, 9 nodes, 34.03 USD an hour\n" in output
    assert "pending" not in output
    assert (checkout.paths.state / "rehearse" / "local.html").is_file()
    assert not [pid for pid in left if (Path("/proc") / str(pid) / "exe").exists()]


def test_the_real_karpenter_buys_two_nodes_for_four_pods_of_three_shares(checkout: Checkout) -> None:
    document, pools = rehearse(checkout, "aws-dev", "--no-shrink")
    assert (document["karpenter"], document["failed"]) == ("aws", False)
    assert (document["pods"]["wanted"], document["pods"]["placed"]) == (4, 4)
    pool = pools["g4dn-shared"]
    assert pool["resources"]["nvidia.com/gpu.shared"] == {"offers": 6, "used": 4, "idle": 2}
    machines = {(machine["machine"], machine["capacity"]) for machine in pool["machines"]}
    assert machines == {("g4dn.xlarge", "on-demand")}
    assert (pool["launched"], pool["in_vain"], pool["usd_per_hour"]) == (2, [], 1.052)
    assert pool["idle_usd_per_hour"] == pytest.approx(1.052 / 3, abs=1e-3)
    lives = [line for line in document["timeline"] if not line["fixed"]]
    assert all(line["ready"] > line["begin"] for line in lives), "held back until the operands have acted"
    assert document["rss_bytes"]["karpenter"] > 0


@pytest.mark.nightly
def test_training_gets_adapters_and_karpenter_buys_what_is_planned(checkout: Checkout) -> None:
    write(checkout, "aws-prod")
    command = ("plan", "aws-prod", "--rehearse", "--json")
    planned = json.loads(checkout.gpuform(*command, patience_s=900).stdout)
    document = planned["rehearsed"]
    pools = {pool["name"]: pool for pool in document["pools"]}
    for group in planned["nodes"]:
        assert sum(machine["count"] for machine in pools[group["pool"]]["machines"]) == group["nodes"]
    assert document["pods"]["placed"] == sum(one["pods"] for one in planned["demands"]) + 3, "gateways"
    assert (document["karpenter"], document["failed"]) == ("aws", False)
    done = {"namespace": "science", "name": "training", "succeeded": 2, "completions": 2}
    assert document["jobs"] == [done]
    resources = pools["h100-training"]["resources"]
    assert resources["vpc.amazonaws.com/efa"] == {"offers": 64, "used": 64, "idle": 0}
    assert resources["hugepages-2Mi"] == {"offers": 20, "used": 10, "idle": 10}


@pytest.mark.nightly
def test_karpenter_buys_for_what_a_queue_admits_and_a_waiting_job_is_next(checkout: Checkout) -> None:
    kinds: dict[str, Json] = {"science": {"kind": "job", "parallelism": 3}, "arts": {"kind": "pod"}}
    teams = [{"name": name, "namespaces": [name], "quota": {"g4dn-shared": 3}} for name in kinds]
    works = [
        {"name": name, "namespace": team, "queue": team, "pool": "g4dn-shared", "image": "x:1", **kinds[team]}
        for team, letters in (("science", "ab"), ("arts", "abcd"))
        for name in letters
    ]
    env = {**stack("aws-dev"), "queues": {"teams": teams}, "workloads": works, "monitoring": None}
    document, _ = rehearse(checkout, "aws-dev", "--no-shrink", env=env, code=1)

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
    env = stack("aws-dev")
    (pool,) = (pool for pool in env["pools"] if pool.pop("machine", "") == "g4dn.xlarge")
    pool["gpu"] = {"models": ["T4"], "count": 1}
    work = workloads(tmp_path, {"name": "w", "kind": "deployment", "pool": "g4dn-shared", "cpu": 3.75})
    _, pools = rehearse(checkout, "aws-dev", "--no-shrink", "--workloads", work, env=env)
    assert [machine["machine"] for machine in pools["g4dn-shared"]["machines"]] == ["g4dn.2xlarge"]


SCALED = yaml.safe_load("""
    name: local
    cluster: {kind: embedded}
    monitoring: {}
    pools:
    - {name: t4, machine: g2.5xlarge, nodes: 2, sharing: {kind: time_slicing, replicas: 4}}
    - {name: cpu, machine: m6i.xlarge, nodes: 1}
    workloads:
    - name: triton
      kind: inference
      namespace: serving
      pool: t4
      image: tritonserver:1
      scale: {min: 1, max: 8, qps_per_replica: 60}
    - name: rare
      kind: inference
      namespace: serving
      image: vllm:1
      cpu: 0.1
      scale: {min: 0, max: 3, qps_per_replica: 150, query: 'sum(rate(hits{ingress="rare"}[1m]))'}
""")
STEPS = ["asked", "created", "node requested", "node launched", "node joined", "node ready", "running"]


def loads(checkout: Checkout, name: str, env: Json, qps: str) -> tuple[Json, list[Json]]:
    document, _ = rehearse(checkout, name, "--qps", qps, env=env)
    assert (document["failed"], document["troubles"], document["shrink"]) == (False, [], None)
    return document, document["loads"]


@pytest.mark.nightly
def test_keda_starts_the_declared_pods_for_a_load_and_none_without_requests(checkout: Checkout) -> None:
    output, result = loads(checkout, "local", SCALED, "0,50,400,0")
    assert [item["qps"] for item in result] == [0, 50, 400, 0]
    pods = [{each["name"]: each["pods"] for each in item["workloads"]} for item in result]
    none, some, many = {"triton": 1, "rare": 0}, {"triton": 1, "rare": 1}, {"triton": 7, "rare": 3}
    assert pods == [none, some, many, none]
    cold = result[2]["workloads"][0]["cold"]
    assert list(cold) == ["asked", "created", "running"], "its node was there"
    assert 0 < cold["asked"] <= cold["created"] <= cold["running"]
    assert result[3]["workloads"][0]["cold"] == {}
    assert any(text.startswith("keda:") for text in output["real"])
    assert "triton's cooldown is 10 s instead of 300 s" in output["shortened"]


@pytest.mark.nightly
def test_karpenters_nodes_follow_the_requests(checkout: Checkout) -> None:
    triton = {**SCALED["workloads"][0], "pool": "g4dn-shared"}
    output, (many, none) = loads(checkout, "aws-dev", {**stack("aws-dev"), "workloads": [triton]}, "400,0")
    assert (many["workloads"][0]["pods"], none["workloads"][0]["pods"]) == (7, 1)
    assert many["bought"] == none["removed"] == {"g4dn.xlarge": 2}, "three pods share a GPU"
    assert many["usd_per_hour"] == pytest.approx(none["usd_per_hour"] + 2 * 0.526)
    cold = many["workloads"][0]["cold"]
    assert list(cold) == STEPS
    assert sorted(cold.values()) == list(cold.values())
    assert output["usd_per_hour"] == none["usd_per_hour"], "as before the first load"


@pytest.mark.nightly
def test_manifests_of_others_run_beside_the_stacks_own_once_they_are_fixed(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = {
        "name": "shared",
        "machine": "g4dn.xlarge",
        "nodes": 8,
        "sharing": {"kind": "time_slicing", "replicas": 4},
    }
    env: Json = {
        "name": "local",
        "cluster": {"kind": "embedded"},
        "scheduling": {"packer": True},
        "pools": [
            shared,
            {"name": "cpu", "machine": "m6i.4xlarge", "nodes": 2},
        ],
        "workloads": [{"name": "own", "kind": "deployment", "pool": "cpu", "image": "x:1"}],
    }
    file = checkout.paths.root / "own.yaml"
    file.write_text(KINDS.read_text().replace("requests: {nvidia", "limits: {nvidia"))
    document, _ = rehearse(checkout, "local", "--manifests", str(file), "--no-shrink", env=env, code=1)
    assert (document["pods"]["wanted"], document["pods"]["placed"]) == (35, 3), "all with a GPU wait"
    assert {pod["why"] for pod in document["pods"]["pending"]} == {
        "0 of 10 nodes fit: 2 have insufficient gpu.shared, 8 have a taint that it does not tolerate"
    }
    checkout.gpuform("check", "local", "-f", str(file), "--fix")
    document, pools = rehearse(checkout, "local", "--manifests", str(file), env=env)
    assert (document["pods"]["wanted"], document["pods"]["placed"]) == (35, 35)
    assert pools["shared"]["resources"]["nvidia.com/gpu.shared"]["used"] == 32
    assert document["jobs"] == [
        {"namespace": "research", "name": "job", "succeeded": 2, "completions": 2},
        {"namespace": "research", "name": "cron", "succeeded": 1, "completions": 1},
    ]
    assert document["shrink"]["after"]["pods"] == 13

    root, before = checkout.paths.root, tmp_path_factory.mktemp("before")
    for entry in root.glob("[!.]*"):
        (before / entry.name).symlink_to(entry)
    (before / "Pulumi.local.yaml").unlink()
    shutil.copy(root / "Pulumi.local.yaml", before)
    env["pools"] = [{**shared, "nodes": 6}, env["pools"][1]]
    (root / "Pulumi.local.yaml").write_text(yaml.safe_dump({"config": {"gpuform:environment": env}}))
    options = ("--base", str(before), "--manifests", str(file), "--json")
    effects = json.loads(checkout.gpuform("preview", "local", *options).stdout)["effects"]
    assert [effect["what"] for effect in effects] == ["node shared-6", "node shared-7"]
    assert {pod["namespace"] for effect in effects for pod in effect["evicts"]} == {"research"}
