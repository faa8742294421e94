"""``gpuform plan``: what it prints and writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.cli.main import app
from infra.config import load

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
    pods = (("rank", 9, "nvidia.com/gpu.shared"), ("big", 1, "nvidia.com/mig-7g.40gb"))
    documents = []
    for name, replicas, resource in pods:
        container = {"name": "c", "image": "a:1", "resources": {"limits": {resource: 1}}}
        spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
        documents.append(
            {"kind": "Deployment", "metadata": {"name": name, "namespace": "search"}, "spec": spec}
        )
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    result = plan("aws-prod", "-f", file)
    assert ["search/rank", "9", "1/4"] in [line.split()[:3] for line in result.stdout.splitlines()]
    assert "search/big is left out: no pool offers nvidia.com/mig-7g.40gb to it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "STACK: neither a stack nor --demands is given"),
        (("--demands", "gone.yaml"), "gone.yaml: No such file or directory; name a file of demands"),
        (("-f", "m.yaml", "--demands", "d.yaml"), "STACK: is missing, and -f is given"),
        (("--demands", "d.yaml", "-o", "Pulumi.a.yaml"), "-o: is given without a stack"),
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
