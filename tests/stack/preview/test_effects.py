"""The effect of each kind of change on nodes and pods, from steps as the engine reports them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.clouds import CLOUDS
from gpuform.engine.events import Change, Message, Step
from gpuform.stack.preview import effects as module
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.effects import guard_notes
from gpuform.stack.preview.snapshot import PodRef, Snapshot
from infra.model.base.guard_names import GUARD

pytestmark = pytest.mark.unit

CASES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "effects.yaml").read_text())
SNAPSHOT = Snapshot(
    {"a100": ("a100-0", "a100-1"), "t4": ("t4-0",)},
    (
        PodRef("science", "Job/train", "train-x", "a100", "a100-0", gpu=True, budget="keep-one"),
        PodRef("science", "Deployment/web", "web-x", "a100", "a100-1", gpu=False),
        PodRef("science", "", "alone", "t4", "t4-0", gpu=True),
    ),
    gpu_nodes=frozenset({"a100-0", "a100-1", "t4-0"}),
)


def effects(steps: list[Step], snapshot: Snapshot) -> tuple[Effect, ...]:
    return module.find_effects(steps, snapshot, [cloud.preview for cloud in CLOUDS.values()])


def step(of: dict[str, Any]) -> Step:
    urn = f"urn:pulumi:s::gpuform::{of['type']}::{of.get('name', 'it')}"
    paths, replaces = (tuple(of.get(key, ())) for key in ("paths", "replaces"))
    return Step(of["op"], urn, "planned", Change(of.get("before", {}), of.get("after", {}), paths, replaces))


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    """The snapshot of all cases, with a case's own pods in the place of its pods."""
    if "pods" not in case:
        return SNAPSHOT
    defaults = {"namespace": "science", "owner": "Job/a", "pool": "a100", "gpu": True}
    pods = [PodRef(**{**defaults, **pod}) for pod in case["pods"]]
    daemons = tuple(pod for pod in pods if pod.owner.startswith("DaemonSet/"))
    return replace(SNAPSHOT, pods=tuple(pod for pod in pods if pod not in daemons), daemons=daemons)


@pytest.mark.parametrize("case", CASES)
def test_the_change_does(case: str) -> None:
    found = effects([step(CASES[case]["step"])], snapshot_of(CASES[case]))
    assert [
        (one.weight.name.lower(), one.what, one.how, [pod.name for pod in one.evicts]) for one in found
    ] == [
        (one["weight"], one["what"], one["how"], one.get("evicts", [])) for one in CASES[case].get("does", [])
    ]


def test_pods_that_kserve_has_made_are_those_of_its_deployment() -> None:
    """Declared ones bear the workload's name."""
    pod = PodRef("science", "Deployment/web-predictor", "web-predictor-1", "a100", "a100-1", gpu=True)
    (found,) = effects(
        [step(CASES["the model of a workload that KServe serves"]["step"])], Snapshot({}, (pod,))
    )
    assert found.evicts == (pod,)


def test_losses_come_first_and_the_order_of_the_steps_does_not_matter() -> None:
    names = ("a label moves", "a node goes", "a cluster anew", "a workload's image")
    steps = [step(CASES[name]["step"]) for name in names]
    found = effects(steps, SNAPSHOT)
    assert [one.weight for one in found] == [Weight.LOSS, Weight.EVICTION, Weight.RESTART, Weight.NOTICE]
    assert effects(steps[::-1], SNAPSHOT) == found


def test_losses_that_only_the_guard_has_seen_are_told() -> None:
    """Once, with what acknowledges them; what steps show already is not repeated."""
    urn = f"urn:pulumi:s::gpuform::{GUARD}::losses-inside"
    found = effects([step(CASES["no namespace"]["step"])], SNAPSHOT)
    lost = "pool t4 is deleted, with running pods: lab/train"
    stale = "acknowledge_loss: old acknowledges nothing (any more); remove it"
    messages = [
        Message("warning", f"{lost}; not acknowledged", urn),
        Message("warning", f"{lost}; not acknowledged", urn),
        Message("warning", "namespace science is deleted, with a; b; acknowledged", urn),
        Message("warning", stale, urn),
        Message("warning", f"{lost}; not acknowledged", urn.replace(GUARD, "another")),
    ]
    losses, others = guard_notes(messages, found)
    assert losses == (Effect(Weight.LOSS, "pool t4", "is deleted, with running pods: lab/train"),)
    assert others == (stale,)


def test_two_nodes_of_a_pool_are_said_once() -> None:
    label = step(CASES["a label moves"]["step"])
    assert len(effects([label, label], SNAPSHOT)) == 1


def test_a_cluster_cannot_follow_its_network() -> None:
    """EKS accepts only other subnets of the cluster's own VPC: the update fails."""
    vpc, cluster = (step(CASES[name]["step"]) for name in ("a VPC anew", "other subnets of a cluster"))
    assert not effects([cluster], SNAPSHOT)
    found = effects([vpc, cluster], SNAPSHOT)
    assert [(one.weight, one.what) for one in found] == [
        (Weight.LOSS, "VPC prod"),
        (Weight.LOSS, "cluster prod"),
    ]
    assert found[0].nodes == ("a100-0", "a100-1", "t4-0")
    assert "has to be replaced, too" in found[1].how


def test_what_goes_with_its_cluster_is_not_told_again() -> None:
    """An unowned cluster, replaced by another kubeconfig, leaves its namespaces behind."""
    cluster = step(CASES["a cluster anew"]["step"])
    inside = step({"op": "replace", "type": "kubernetes:core/v1:Namespace", "replaces": ["provider"]})
    renamed = step({"op": "replace", "type": "kubernetes:core/v1:Namespace", "replaces": ["metadata.name"]})
    assert [one.what for one in effects([cluster, inside], SNAPSHOT)] == ["cluster prod"]
    assert [one.what for one in effects([inside], SNAPSHOT)] == ["namespace it"]
    assert {one.what for one in effects([cluster, renamed], SNAPSHOT)} == {"cluster prod", "namespace it"}
