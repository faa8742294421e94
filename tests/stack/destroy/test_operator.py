"""Before NVIDIA's operator is uninstalled from a cluster that stays, what only it can delete is gone."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.kinds import Kind
from gpuform.stack.destroy import Destroy, StackTeardown, operator
from tests.build.environments import on
from tests.stack.destroy.engine_state import (
    PlayedCluster,
    PlayedEngine,
    engine_of,
    patch_cluster,
    resource,
    teardown_of,
)

pytestmark = pytest.mark.unit

RELEASE = resource(
    "urn:pulumi:s::gpuform::kubernetes:helm.sh/v3:Release::operator-release", id="gpu-operator/gpu-operator"
)
HELD = {"finalizers": ["nvidia.com/gpucluster"]}
GOING = {**HELD, "deletionTimestamp": "2026-11-25T00:00:00Z"}
OF_RELEASE = {"annotations": {f"meta.helm.sh/release-{key}": "gpu-operator" for key in ("name", "namespace")}}
Objects = dict[Kind, list[dict[str, Any]]]


class Played(PlayedCluster):
    """A cluster of which the given objects are gone after ``looks`` looks; None: never."""

    def __init__(self, objects: Objects, looks: int | None = 0, problem: str = "") -> None:
        super().__init__(objects, problem)
        self._looks = looks

    def list_objects(self, kind: Kind, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        found = super().list_objects(kind)
        if self._looks is not None and kind == operator.GPU_CLUSTER:
            self._looks -= 1
        return [] if self._looks is not None and self._looks < 0 else found


def one(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


def stack_on_cluster(
    monkeypatch: pytest.MonkeyPatch, played: Played, lines: list[str], state: Any = None, **gpu_operator: Any
) -> tuple[StackTeardown, PlayedEngine]:
    patch_cluster(monkeypatch, played, "/nowhere", "lab")
    cluster = {"kubeconfig": "/nowhere", "context": "lab"}
    env = on("existing", {"machine": "g2.5xlarge"}, cluster=cluster, gpu_operator=gpu_operator)
    resources = [RELEASE] if state is None else state
    target = teardown_of(env, {"deployment": {"resources": resources}}, lines.append, wait_s=0.3)
    return target, engine_of(target)


@pytest.mark.parametrize(
    ("objects", "fact", "remedy"),
    [
        ({operator.GPU_CLUSTER: [one("gpu-cluster", **HELD)]},
         "1 GPUCluster left: gpu-cluster (finalizer nvidia.com/gpucluster); only the running operator",
         "`kubectl delete gpuclusters.nvidia.com/gpu-cluster`"),
        ({operator.DRIVER: [one("gold"), one("silver"), one("default", **OF_RELEASE)]},
         "2 NVIDIADrivers left: gold, silver; only the running operator",
         "`kubectl delete nvidiadrivers.nvidia.com/gold nvidiadrivers.nvidia.com/silver`"),
    ],
)  # fmt: skip
def test_what_only_the_operator_can_delete_is_named_before_anything_is_deleted(
    monkeypatch: pytest.MonkeyPatch, objects: Objects, fact: str, remedy: str
) -> None:
    target, engine = stack_on_cluster(monkeypatch, Played(objects, None), [])
    with pytest.raises(Failure) as failed:
        Destroy(target, target.plan()).run()
    assert failed.value.fact.startswith(fact)
    assert remedy in failed.value.remedy
    assert engine.asked == [], "nothing is deleted"


def test_what_is_being_deleted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    played = Played({operator.GPU_CLUSTER: [one("gpu-cluster", **GOING)]}, looks=2)
    target, engine = stack_on_cluster(monkeypatch, played, lines)
    Destroy(target, target.plan()).run()
    assert "[stack] 1 GPUCluster left: gpu-cluster (finalizer nvidia.com/gpucluster)" in lines
    assert engine.asked == [()]


def test_the_wait_ends_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played({operator.GPU_CLUSTER: [one("gpu-cluster", **GOING)]}, None)
    target, engine = stack_on_cluster(monkeypatch, played, [])
    message = r"gpu-cluster \(finalizer nvidia.com/gpucluster\) after 0.3 s; .* its log"
    with pytest.raises(Failure, match=message):
        Destroy(target, target.plan()).run()
    assert engine.asked == []


def test_what_the_release_made_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played({operator.DRIVER: [one("default", **OF_RELEASE)]}, None)
    target, engine = stack_on_cluster(monkeypatch, played, [])
    Destroy(target, target.plan()).run()
    assert engine.asked == [()]


@pytest.mark.parametrize(
    ("problem", "state", "gpu_operator"),
    [("connection refused", None, {}), ("", [], {}), ("", None, {"mode": "existing"})],
    ids=["unreachable", "no release", "another's operator"],
)
def test_operators_objects_are_left_to_the_engine_in_other_cases(
    monkeypatch: pytest.MonkeyPatch, problem: str, state: Any, gpu_operator: dict[str, str]
) -> None:
    """An unreachable cluster is the engine's to report; an operator that stays deletes its objects later."""
    played = Played({operator.GPU_CLUSTER: [one("gpu-cluster", **HELD)]}, None, problem)
    more = [resource("urn:pulumi:s::gpuform::kubernetes:core/v1:ConfigMap::c")]
    resources = more if state == [] else [RELEASE, *more] if not gpu_operator else more
    target, engine = stack_on_cluster(monkeypatch, played, [], resources, **gpu_operator)
    Destroy(target, target.plan()).run()
    assert engine.asked == [()]
