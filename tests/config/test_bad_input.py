"""What bad_input.yaml cannot say in one line."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.errors import InputError
from tests.config.edits import changed, message
from tests.config.tables import GOOD

pytestmark = pytest.mark.unit


def change(path: str, value: Any) -> dict[str, Any]:
    """The good environment with one change; ``...`` removes the field."""
    return changed(
        GOOD["embedded"], {"at": path, "remove": True} if value is ... else {"at": path, "put": value}
    )


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    mapping = change("pools/0", {"name": "t4", "nodes": 1, "gpu": {"models": ["T4", "A100-40G"], "count": 1}})
    said = message(mapping)
    assert said.startswith("pools[0].gpu.models[1]: unknown GPU 'A100-40G'; did you mean A100-40GB? known: ")
    assert "RTX PRO 6000" in said
    assert "H200" in said


def test_two_workloads_with_one_name() -> None:
    mapping = changed(GOOD["embedded"])
    mapping["workloads"].append(dict(mapping["workloads"][0]))
    assert message(mapping) == (
        "workloads[1].name: 'work' is also workloads[0] of namespace 'default'; "
        "give each workload a name of its own"
    )
    mapping["workloads"][1]["namespace"] = "other"
    assert len(parse(mapping).workloads) == 2


def test_an_existing_cluster_needs_selectors() -> None:
    mapping = changed(GOOD["embedded"])
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
