"""What a rehearsal places: the stack's workloads or a file's; and which pool fails, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import InputError
from lab.rehearse.workloads import environment

pytestmark = pytest.mark.unit

REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text())
ENVIRONMENT: dict[str, Any] = {
    "name": "lab",
    "cluster": {"kind": "embedded"},
    "pools": [
        {
            "name": "t4",
            "machine": "g2.xlarge",
            "nodes": 1,
            "sharing": {"kind": "time_slicing", "replicas": 4},
        },
        {
            "name": "mig",
            "machine": "g4.p1.40g",
            "nodes": 1,
            "sharing": {"kind": "mig", "layout": {"3g.20gb": 2}},
        },
        {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
    ],
    "workloads": [{"name": "own", "kind": "pod", "image": "x:1"}],
}
AWS: dict[str, Any] = {
    "name": "lab",
    "cluster": {
        "kind": "aws",
        "region": "us-west-2",
        "version": "1.34",
        "network": {"cidr": "10.20.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
        "images": {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"},
    },
    "pools": [
        {"name": "l40s", "gpu": {"models": ["L40S"], "count": 1}, "elastic": {"max": {"cpu": 640}}},
    ],
}


def work(**more: Any) -> dict[str, Any]:
    return {"name": "w", "kind": "deployment", "image": "x:1", **more}


def refused(declared: dict[str, Any], work: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Path, without the folder, and fact of the error for workloads from a file."""
    file = folder / "work.yaml"
    file.write_text(yaml.safe_dump({"workloads": [work]}))
    with pytest.raises(InputError) as caught:
        environment(declared, "Pulumi.lab.yaml", file)
    return caught.value.path.removeprefix(f"{folder}/"), caught.value.fact


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["fact"])
def test_each_pool_is_named_with_what_it_fails_on(row: dict[str, Any], tmp_path: Path) -> None:
    where = f"work.yaml: workloads[0]{'.' if row['at'] else ''}{row['at']}"
    assert refused(ENVIRONMENT, work(**row["workload"]), tmp_path) == (where, row["fact"])


def test_of_an_elastic_pool_every_machine_counts(tmp_path: Path) -> None:
    path, fact = refused(AWS, work(pool="l40s", cpu=65), tmp_path)
    assert (path, fact) == (
        "work.yaml: workloads[0].cpu",
        "no pool can hold it (l40s: cpu, 65 requested of 63.575 cores)",
    )
    asked = [work(pool="l40s", cpu=63.5, memory="450Gi")]
    assert environment({**AWS, "workloads": asked}, "x").workloads[0].cpu == "63.5"


def test_a_stack_of_gpus_alone_holds_no_workload_that_names_no_pool(tmp_path: Path) -> None:
    _, fact = refused(AWS, work(), tmp_path)
    assert fact.startswith("no pool can hold it (l40s: taint nvidia.com/gpu")


def test_the_own_workloads_are_refused_with_the_path_in_the_stack_file() -> None:
    declared = {**ENVIRONMENT, "workloads": [work(), work(name="b", pool="cpu", cpu=5)]}
    with pytest.raises(
        InputError,
        match=r"^workloads\[1\]\.cpu: no pool can hold it \(cpu: cpu, 5 requested of 3.995 cores\)",
    ):
        environment(declared, "Pulumi.lab.yaml")


def test_a_file_takes_the_place_of_the_own_even_where_those_are_wrong(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("workloads:\n  - {name: other, kind: pod, image: 'x:1'}\n")
    declared = {**ENVIRONMENT, "workloads": [work(pool="nowhere")]}
    assert [one.name for one in environment(declared, "x", file).workloads] == ["other"]
    file.write_text("workloads:\n")
    assert environment(declared, "x", file).workloads == ()


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (None, "No such file or directory"),
        ("- {name: a}\n", "holds no mapping"),
        ("pools: []\nworkloads: []\n", "holds pools, workloads"),
        ("workloads: [\n", "expected the node content"),
        ("workloads: {a: 1}\n", "holds a mapping"),
        ("{1: 2, a: b}\n", "holds 1, a"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_none(text: str | bytes | None, fact: str, tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    if isinstance(text, str):
        file.write_text(text)
    elif text is not None:
        file.write_bytes(text)
    with pytest.raises(InputError) as caught:
        environment(ENVIRONMENT, "x", file)
    assert fact in caught.value.fact
    assert caught.value.path.startswith(str(file)) or caught.value.path == "workloads"


def test_what_is_wrong_with_the_whole_list_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "work.yaml"
    file.write_text("workloads: 3\n")
    with pytest.raises(InputError) as caught:
        environment(ENVIRONMENT, "Pulumi.lab.yaml", file)
    assert str(caught.value) == f"{file}: workloads: holds the number 3; give a list"


def test_hosts_that_have_joined_no_cluster_can_be_asked_what_they_would_hold(tmp_path: Path) -> None:
    declared = {
        "name": "hosts",
        "cluster": {"kind": "hosts", "driver": {"source": "nvidia", "version": "580.95.05"}},
        "pools": [{"name": "t4", "hosts": ["a"], "gpu": {"models": ["T4"], "count": 1}}],
    }
    file = tmp_path / "work.yaml"
    # Hosts do not declare their size, so no request is too large.
    file.write_text(yaml.safe_dump({"workloads": [work(pool="t4", cpu=500)]}))
    assert environment(declared, "x", file).workloads[0].pool == "t4"
    _, fact = refused(declared, work(pool="t4", count=2), tmp_path)
    assert fact == "no pool can hold it (t4: nvidia.com/gpu, 2 requested of 1)"


def test_of_a_pool_of_several_sizes_the_largest_counts(tmp_path: Path) -> None:
    pool = {"name": "t4", "gpu": {"models": ["T4"], "count": [1, 4]}, "elastic": {"max": {"cpu": 640}}}
    declared = {**AWS, "pools": [pool], "workloads": [work(pool="t4", count=4)]}
    assert environment(declared, "x").workloads[0].count == 4
    _, fact = refused(declared, work(pool="t4", count=8), tmp_path)
    assert fact == "no pool can hold it (t4: nvidia.com/gpu, 8 requested of 4)"
