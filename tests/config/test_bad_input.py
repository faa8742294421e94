"""Bad input: one table of (error, message); none of it reaches the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model.errors import InputError
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

IMAGE = "tensorflow/tensorflow:2.12.0-gpu"


def good() -> dict[str, Any]:
    return {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "pools": [
            {
                "name": "t4",
                "machine": "g2.5xlarge",
                "nodes": 1,
                "sharing": {"kind": "time_slicing", "replicas": 4},
            },
            {
                "name": "mig",
                "machine": "g4.p1.40g",
                "nodes": 1,
                "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
            },
            {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
        ],
        "workloads": [{"name": "work", "kind": "pod", "pool": "t4", "image": IMAGE}],
    }


def change(path: str, value: Any) -> dict[str, Any]:
    """The good environment with one change; ``...`` removes the field."""
    return changed(good(), {"at": path, "remove": True} if value is ... else {"at": path, "put": value})


def test_the_good_one_is_good() -> None:
    assert [pool.name for pool in parse(good()).pools] == ["t4", "mig", "cpu"]


ROWS = yaml.safe_load((Path(__file__).parent / "bad_input.yaml").read_text())


@pytest.mark.parametrize("row", ROWS, ids=[row["at"] for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(change(row["at"], ... if row.get("remove") else row["put"])) == row["said"]


def test_an_unknown_machine_lists_the_known_ones() -> None:
    said = message(change("pools/0/machine", "g2.5xlrge"))
    assert said.startswith(
        "pools[0].machine: unknown machine 'g2.5xlrge'; did you mean g2.5xlarge? known: g1.xlarge, "
    )
    assert "p5en.48xlarge" in said


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    mapping = change("pools/0", {"name": "t4", "nodes": 1, "gpu": {"models": ["T4", "A100-40G"], "count": 1}})
    said = message(mapping)
    assert said.startswith("pools[0].gpu.models[1]: unknown GPU 'A100-40G'; did you mean A100-40GB? known: ")
    assert "RTX PRO 6000" in said
    assert "H200" in said


def test_two_workloads_with_one_name() -> None:
    mapping = good()
    mapping["workloads"].append(dict(mapping["workloads"][0]))
    assert message(mapping) == (
        "workloads[1].name: 'work' is also workloads[0] of namespace 'default'; "
        "give each workload a name of its own"
    )
    mapping["workloads"][1]["namespace"] = "other"
    assert len(parse(mapping).workloads) == 2


def test_no_machine_for_these_gpus() -> None:
    mapping = change("pools/0", {"name": "t4", "nodes": 1, "gpu": {"models": ["A30", "L4"], "count": 3}})
    assert message(mapping) == (
        "pools[0].gpu: no known machine has 3 of A30 or L4; name a machine, or another count"
    )


def test_a_layout_must_fit_every_model_of_the_pool() -> None:
    pool = {
        "name": "t4",
        "nodes": 1,
        "gpu": {"models": ["A100-40GB", "A100-80GB"], "count": 1},
        "sharing": {"kind": "mig", "layout": {"1g.5gb": 7}},
    }
    assert message(change("pools/0", pool)).startswith(
        "pools[0].sharing.layout.1g.5gb: A100-SXM4-80GB has no such profile; "
    )


def test_an_existing_cluster_needs_selectors() -> None:
    mapping = good()
    mapping["cluster"] = {"kind": "existing", "kubeconfig": "/k"}
    for pool in mapping["pools"]:
        del pool["nodes"]
    assert (
        message(mapping) == "pools[0].selector: missing; give the labels by which the pool's nodes are found"
    )
    mapping["pools"][0]["selector"] = {}
    assert message(mapping) == "pools[0].selector: is empty; give at least one"


@pytest.mark.parametrize(("value", "what"), [(None, "nothing"), ([], "a list"), ("x", "the text 'x'")])
def test_an_environment_that_is_no_mapping(value: Any, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(value, "Pulumi.x.yaml")
    assert str(caught.value) == (
        f"Pulumi.x.yaml: gpuform:environment holds {what}; it must hold keys: name, cluster, pools, ..."
    )


def test_the_parts_of_an_error_are_kept_apart() -> None:
    with pytest.raises(InputError) as caught:
        parse(change("pools/0/sharing/replicas", 1))
    error = caught.value
    assert (error.path, error.fact, error.remedy) == (
        "pools[0].sharing.replicas",
        "1 shares nothing",
        "use 2 or more, or kind: exclusive",
    )


def test_under_the_strategy_single_no_slice_has_a_name() -> None:
    mapping = change("gpu_operator", {"mig_strategy": "single"})
    mapping["pools"][1]["sharing"]["layout"] = "all-1g.5gb"
    mapping["workloads"][0].update({"pool": "mig", "slice": "1g.5gb"})
    assert message(mapping) == "workloads[0].slice: pool mig offers no slice '1g.5gb'; leave it out"
    del mapping["workloads"][0]["slice"]
    assert parse(mapping).workloads[0].slice is None


@pytest.mark.parametrize("cpu", ["9" * 309, "9" * 400 + "m", "9" * 5000, "1" * 20 + ".5"])
def test_an_amount_has_as_many_digits_as_a_quantity_can_hold(cpu: str) -> None:
    assert "is not an amount of CPU" in message(change("workloads/0/cpu", cpu))
    assert "is not an amount of memory" in message(change("workloads/0/memory", cpu.rstrip("m") + "Gi"))
