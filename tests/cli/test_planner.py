"""``gpuform plan``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.cli.main import app
from gpuform.usage.rehearsal import Outcome, PendingPod
from infra.config import KEY, load, parse
from lab.rehearse.run import Rehearsal
from tests.build.clusters import node, pod
from tests.build.environments import declared
from tests.lab.rehearse.outcomes import WAITS, drawn, outcome

pytestmark = pytest.mark.unit


def plan(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_it_writes_a_stack_file_with_the_planned_pools(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.planned.yaml"
    result = plan("aws-prod", "-o", file)
    assert result.exit_code == 0
    assert "proved: no plan for these demands needs less" in result.stdout
    before, after = load(Path("Pulumi.aws-prod.yaml")), load(file)
    assert (before.pool("a100-mig").nodes, after.pool("a100-mig").nodes) == (2, 1)
    assert [work.name for work in after.workloads] == [work.name for work in before.workloads]
    again = plan("aws-prod", "-o", file)
    assert (again.exit_code, "already exists" in again.stderr) == (2, True)


def test_a_workload_that_moves_names_its_new_pool_and_no_slice(tmp_path: Path) -> None:
    demands, file = tmp_path / "d.yaml", tmp_path / "Pulumi.planned.yaml"
    moved = "name: science/simulation, gpu_memory: 8Gi, compute: 0.1, class: low_priority, models: [L40S]"
    demands.write_text(f"demands: [{{{moved}}}]")
    assert plan("aws-prod", "--demands", demands, "-o", file).exit_code == 0
    after = load(file)
    work = next(work for work in after.workloads if work.name == "simulation")
    assert (work.pool, work.slice) == ("l40s-inference", None)
    assert "a100-mig" not in [pool.name for pool in after.pools]


def test_manifests_count_and_what_no_pool_offers_is_left_out(tmp_path: Path) -> None:
    pods: tuple[tuple[str, int, dict[str, int]], ...] = (
        ("rank", 9, {"nvidia.com/gpu.shared": 1}),
        ("big", 1, {"nvidia.com/mig-7g.40gb": 1}),
        ("linked", 2, {"nvidia.com/gpu": 1, "vpc.amazonaws.com/efa": 32}),
    )
    documents = []
    for name, replicas, limits in pods:
        container = {"name": "c", "image": "a:1", "resources": {"limits": limits}}
        spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
        documents.append(
            {"kind": "Deployment", "metadata": {"name": name, "namespace": "search"}, "spec": spec}
        )
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    result = plan("aws-prod", "-f", file)
    assert ["search/rank", "9", "1/4"] in [line.split()[:3] for line in result.stdout.splitlines()]
    assert ["h100-training", "4"] in [line.split()[:2] for line in result.stdout.splitlines()], (
        "of 32 adapters"
    )
    assert "search/big is left out: no pool offers nvidia.com/mig-7g.40gb to it" in result.stderr


def running_cluster(folder: Path) -> Path:
    """Five nodes of eight A100s: two full of one job, two of sixteen pods of a service, one free."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "8"}
    gpus = [{"resources": {"limits": {"nvidia.com/gpu": count}}} for count in ("8", "1")]
    job = {"owner": ("Job", "train"), "namespace": "ml", **gpus[0]}
    service = {"owner": ("ReplicaSet", "api-7d"), "namespace": "web", **gpus[1]}
    items = [node(f"gpu-{index}", labels, {"nvidia.com/gpu": 8}) for index in range(5)]
    items += [pod(f"train-{index}", f"gpu-{index}", **job) for index in range(2)]
    tags = {"pod-template-hash": "7d"}
    items += [pod(f"api-7d-{index}", f"gpu-{2 + index % 2}", labels=tags, **service) for index in range(16)]
    items.append(pod("api-7d-old", "gpu-4", phase="Failed", labels=tags, **service))
    file = folder / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


def test_a_running_cluster_is_planned_without_a_stack(tmp_path: Path) -> None:
    dump = running_cluster(tmp_path)
    found = json.loads(plan("--from", dump, "--json").stdout)
    (demands,) = [{one["demand"]: one["pods"] for one in found["demands"]}]
    assert demands == {"ml/train": 2, "web/api": 16}
    assert (found["now"], found["price"], found["unit"]) == (40, 32, "GPUs")
    assert found["steps"] == []


def test_a_dump_without_pods_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps(node("gpu-1", {}, {"nvidia.com/gpu": 8})))
    result = plan("--from", file)
    assert (result.exit_code, "--from: no pod runs there; dump `nodes,pods`" in result.stderr) == (2, True)


def test_of_a_running_cluster_free_nodes_are_cut_first_by_a_label(tmp_path: Path) -> None:
    demands, file = tmp_path / "d.yaml", tmp_path / "Pulumi.planned.yaml"
    demands.write_text("demands: [{name: web/api, gpu_memory: 4Gi, compute: 0.1}]")
    result = plan("--from", running_cluster(tmp_path), "--demands", demands, "-o", file)
    assert result.exit_code == 0
    labelled = dict(re.findall("kubectl label node (.+) gpu-pool=([^ ]+) --overwrite", result.stderr))
    assert labelled == {"gpu-0 gpu-1 gpu-2 gpu-3": "a100-sxm4-40gb", "gpu-4": "a100-sxm4-40gb-2"}
    env = load(file)
    assert (env.cluster.kind, env.name) == ("existing", "planned")
    assert [pool.selector and pool.selector["gpu-pool"] for pool in env.pools] == [*labelled.values()]


def test_a_pool_without_nodes_is_shared_in_no_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = {"name": "a100", "machine": "g4.p1.40g", "nodes": 0}
    (tmp_path / "Pulumi.yaml").write_text(Path("Pulumi.yaml").read_text())
    stack = {"config": {KEY: declared("embedded", pool, workloads=[])}}
    (tmp_path / "Pulumi.e.yaml").write_text(yaml.safe_dump(stack))
    (tmp_path / "d.yaml").write_text("demands: [{name: serve, replicas: 12, gpu_memory: 4Gi, compute: 0.1}]")
    monkeypatch.chdir(tmp_path)
    result = plan("e", "--demands", "d.yaml")
    assert re.search(r"^a100 +2 \(now 0\) ", result.stdout, re.MULTILINE)
    assert "would be shared in another way" not in result.stdout


def test_updates_before_the_last_are_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"name": "a100", "gpu": {"models": ["A100-40GB"], "count": 4}, "nodes": 4}
    train, serve = {"name": "train", "count": 4}, {"name": "serve", "replicas": 12}
    works = [{"kind": "deployment", "pool": "a100", **work} for work in (train, serve)]
    stack = {"config": {KEY: declared("embedded", pool, workloads=works)}}
    (tmp_path / "Pulumi.yaml").write_text(Path("Pulumi.yaml").read_text())
    (tmp_path / "Pulumi.e.yaml").write_text(yaml.safe_dump(stack))
    (tmp_path / "d.yaml").write_text("demands: [{name: serve, gpu_memory: 4Gi, compute: 0.1}]")
    monkeypatch.chdir(tmp_path)
    arguments = ("e", "--demands", "d.yaml", "-o", "Pulumi.planned.yaml")
    result = plan(*arguments)
    assert "wrote Pulumi.planned-1.yaml, Pulumi.planned.yaml; next: gpuform rehearse planned" in result.stdout
    assert [line.split() for line in result.stdout.splitlines() if "->" in line] == [
        ["1", "a100-2", "0", "->", "1", "default/serve"],
        ["2", "a100", "4", "->", "1", "-"],
    ]
    assert "would be shared in another way" not in result.stdout, "the nodes are new"
    first, last = (load(tmp_path / f"Pulumi.planned{number}.yaml") for number in ("-1", ""))
    assert [{pool.name: pool.nodes for pool in env.pools} for env in (first, last)] == [
        {"a100": 4, "a100-2": 1},
        {"a100": 1, "a100-2": 1},
    ]
    (tmp_path / "Pulumi.planned.yaml").unlink()
    again = plan(*arguments)
    assert (again.exit_code, "Pulumi.planned-1.yaml: already exists" in again.stderr) == (2, True)
    assert not (tmp_path / "Pulumi.planned.yaml").exists()


@pytest.mark.parametrize(("pending", "code"), [((), 0), ((WAITS,), 1)])
def test_the_planned_stack_is_rehearsed(
    pending: tuple[PendingPod, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of the real one, which a nightly test runs, one that ends at once."""
    rehearsed = []

    def run(self: Rehearsal) -> Outcome:
        rehearsed.append(env := parse(self.declared or {}))
        found = outcome(pending=pending)
        pools = tuple(replace(found.pools[1], name=pool.name) for pool in env.pools)
        return replace(found, pools=pools, nodes=(drawn("n", "a100-mig", 8, 7),), troubles=())

    monkeypatch.setattr(Rehearsal, "run", run)
    result = plan("aws-prod", "--rehearse")
    assert result.exit_code == code
    assert [env.pool("a100-mig").nodes for env in rehearsed] == [1]
    bought = "a100-mig 1x p4d.24xlarge 2x p4d.24xlarge, on-demand, us-west-2a 1"
    assert bought in [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert ("pending: science/train-<b>" in result.stdout) == bool(pending)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--context", "here", "aws-dev"), "--context: is given without --from; give both"),
        (("--from", "m.yaml", "--context", "here"), "--context: m.yaml is no kubeconfig; leave it out"),
        (("--from", "m.yaml"), "m.yaml: holds no Node"),
        ((), "STACK: is missing, and so is what to count"),
        (("--demands", "gone.yaml"), "gone.yaml: No such file or directory; name a file of demands"),
        (("-f", "m.yaml", "--demands", "d.yaml"), "STACK: is missing, and -f is given"),
        (("--demands", "d.yaml", "-o", "Pulumi.a.yaml"), "-o: is given without a stack"),
        (("--demands", "d.yaml", "--rehearse"), "--rehearse: is given without a stack"),
        (
            ("onprem-dev", "--demands", "d.yaml", "--rehearse"),
            "--rehearse: gpuform would refuse these pools: ",
        ),
        (("aws-dev", "-o", "planned.yaml"), "-o: planned.yaml is not the name of a stack file"),
        (("aws-dev", "--measured", "14"), "--measured: '14' is no time; give it as 90m, 12h, 14d or 4w"),
        (("--demands", "d.yaml", "--measured", "14d"), "STACK: is missing, and --measured is given"),
        (("onprem-dev",), "workloads: no workload requests a GPU"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    arguments: tuple[str, ...], error: str, tmp_path: Path
) -> None:
    (tmp_path / "d.yaml").write_text("machines: [T4]\ndemands: [{name: a, count: 1}]")
    (tmp_path / "m.yaml").write_text("{}")
    here = {"d.yaml", "m.yaml", "Pulumi.a.yaml", "gone.yaml"}
    result = plan(*(tmp_path / word if word in here else word for word in arguments))
    assert result.exit_code == 2
    assert error in result.stderr.replace(f"{tmp_path}/", "")
    assert {file.name for file in tmp_path.iterdir()} == {"d.yaml", "m.yaml"}
