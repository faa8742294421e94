"""The driver's upgrade: NVIDIA's states in NVIDIA's order, and who may begin."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuform.simulator import driver_manager, keys, operands, upgrade, upgrade_policy
from gpuform.simulator.actions import Annotate, Cordon, Crash, Delete, Event, Evict, NodeMeta
from gpuform.simulator.upgrade_policy import Managed, Policy, Removal
from gpuform.simulator.world import Cluster
from tests.simulator.conftest import RUNNING

pytestmark = pytest.mark.unit

GPU = "nvidia.com/gpu"
POLICY = Policy(1, "25%", "", Removal(force=False, scratch=False), None)
NEW = "new"
UPGRADING = replace(RUNNING, upgrade=POLICY, driver_revision=NEW, driver_digest="d2")


def at(make_world: Any, state: str, revision: str = "old", policy: Policy = POLICY, **given: Any) -> Any:
    """A node in a state of its upgrade; its driver pod is of ``revision``."""
    labels = ({keys.UPGRADE_STATE: state} if state else {}) | given.pop("labels", {})
    world = make_world(labels=labels, cluster=replace(UPGRADING, upgrade=policy), **given)
    for pod in world.of("driver"):
        pod.revision = revision
    return world


def state_after(world: Any) -> str | None:
    states = [a.labels[keys.UPGRADE_STATE] for a in upgrade.act(world) if isinstance(a, NodeMeta)]
    return states[0] if states else None


STEPS = [
    ("", NEW, "upgrade-done"),
    ("", "old", "upgrade-required"),
    ("upgrade-done", "old", "upgrade-required"),
    ("upgrade-done", NEW, None),
    ("upgrade-required", "old", None),  # until it is admitted
    ("cordon-required", "old", "wait-for-jobs-required"),
    ("wait-for-jobs-required", "old", "pod-deletion-required"),
    ("pod-deletion-required", "old", "pod-restart-required"),
    ("drain-required", "old", "pod-restart-required"),  # without a drain in the policy
    ("pod-restart-required", "old", None),
    ("pod-restart-required", NEW, "validation-required"),
    ("uncordon-required", NEW, "upgrade-done"),
    ("upgrade-failed", "old", None),
    ("upgrade-failed", NEW, "uncordon-required"),  # somebody has put it right
    ("nonsense", NEW, None),
]


@pytest.mark.parametrize(("state", "revision", "then"), STEPS)
def test_from_state_to_state(make_world: Any, state: str, revision: str, then: str | None) -> None:
    assert state_after(at(make_world, state, revision)) == then


def test_the_node_is_cordoned_and_in_the_end_uncordoned(make_world: Any) -> None:
    assert Cordon(True) in upgrade.act(at(make_world, "cordon-required"))
    assert Cordon(False) in upgrade.act(at(make_world, "uncordon-required", NEW))


def test_one_that_was_cordoned_before_stays_so(make_world: Any, make_pod: Any) -> None:
    world = at(make_world, "upgrade-done")
    world.node.unschedulable = True
    (begins,) = upgrade.act(world)
    assert begins.annotations == {keys.UPGRADE_INITIAL: "true"}
    validator = make_pod("v", "validator")
    kept = at(make_world, "validation-required", NEW, annotations=begins.annotations, pods=(validator,))
    (done,) = upgrade.act(kept)
    assert done.labels == {keys.UPGRADE_STATE: "upgrade-done"}
    assert done.annotations == {keys.UPGRADE_INITIAL: None}


def test_without_automatic_upgrades_there_are_no_states(make_world: Any) -> None:
    labels = {keys.UPGRADE_STATE: "upgrade-done"}
    (meta,) = upgrade.act(make_world(labels=labels))
    assert meta.labels == {keys.UPGRADE_STATE: None}
    assert upgrade.act(make_world(cluster=Cluster(), labels=labels)) == []


def test_jobs_are_waited_for(make_world: Any, make_pod: Any) -> None:
    patient = replace(POLICY, wait_for="kind=job")
    job = make_pod("job", asks={GPU: 1}, devices="x", labels={"kind": "job"})
    assert upgrade.act(at(make_world, "wait-for-jobs-required", policy=patient, pods=(job,))) == []
    job.phase = "Succeeded"
    world = at(make_world, "wait-for-jobs-required", policy=patient, pods=(job,))
    assert state_after(world) == "pod-deletion-required"


def owned(make_pod: Any, name: str = "web", **fields: Any) -> Any:
    return make_pod(name, asks={GPU: 1}, owner=("ReplicaSet", "web", "uid"), **fields)


def test_pods_with_gpus_are_evicted_and_no_others(make_world: Any, make_pod: Any) -> None:
    web, init = owned(make_pod), make_pod("init", requests=(("i", True, ((GPU, 1),)),))
    going = owned(make_pod, "going", deleting=True)
    pods = (web, going, init, owned(make_pod, "done", phase="Succeeded"))
    assert upgrade.act(at(make_world, "pod-deletion-required", pods=pods)) == [Evict(web)]


HELD: list[tuple[dict[str, Any], Removal]] = [
    ({"owner": ("", "", "")}, Removal(force=True, scratch=False)),
    ({"scratch": True}, Removal(force=False, scratch=True)),
]


@pytest.mark.parametrize(("fields", "frees"), HELD)
def test_a_pod_that_may_not_be_evicted_fails_the_upgrade(
    make_world: Any, make_pod: Any, fields: dict[str, Any], frees: Removal
) -> None:
    pod = make_pod("bare", asks={GPU: 1}, **{"owner": ("ReplicaSet", "r", "u"), **fields})
    pods = (pod, owned(make_pod))
    meta, event = upgrade.act(at(make_world, "pod-deletion-required", pods=pods))
    assert meta.labels == {keys.UPGRADE_STATE: "upgrade-failed"}
    assert isinstance(event, Event)
    assert "Cannot delete all required pods: default/bare" in event.message
    drained = replace(POLICY, drain=frees)
    world = at(make_world, "pod-deletion-required", policy=drained, pods=pods)
    assert state_after(world) == "drain-required"
    world = at(make_world, "drain-required", policy=drained, pods=pods)
    assert upgrade.act(world) == [Evict(pod), Evict(pods[1])]
    freed = replace(POLICY, deletion=frees)
    assert upgrade.act(at(make_world, "pod-deletion-required", policy=freed, pods=pods))[0] == Evict(pod)


def test_the_pod_of_a_daemon_set_fails_the_upgrade_whatever_is_allowed(
    make_world: Any, make_pod: Any
) -> None:
    pod = make_pod("ds", asks={GPU: 1}, owner=("DaemonSet", "d", "u"))
    allowed = replace(POLICY, deletion=Removal(force=True, scratch=True))
    world = at(make_world, "pod-deletion-required", policy=allowed, pods=(pod,))
    assert state_after(world) == "upgrade-failed"


def test_the_drivers_pod_is_restarted_once(make_world: Any) -> None:
    world = at(make_world, "pod-restart-required")
    driver = world.running("driver")
    assert upgrade.act(world) == [Delete(driver)]
    driver.deleting = True
    assert upgrade.act(world) == []


def test_validation_waits_for_the_validator(make_world: Any, make_pod: Any) -> None:
    expected = {f"{keys.DEPLOY}operator-validator": "true"}
    assert upgrade.act(at(make_world, "validation-required", NEW, labels=expected)) == []
    waits = make_pod("v", "validator", phase="Pending", ready=False, start="waits")
    world = at(make_world, "validation-required", NEW, labels=expected, pods=(waits,))
    assert upgrade.act(world) == []
    world = at(make_world, "validation-required", NEW, labels=expected, pods=(make_pod("v", "validator"),))
    assert state_after(world) == "uncordon-required"
    assert state_after(at(make_world, "validation-required", NEW)) == "uncordon-required"


def test_cern_v100_with_a_driver_that_dropped_it_has_failed_and_stays_cordoned(
    make_world: Any, make_pod: Any
) -> None:
    pod = make_pod("driver-2", "driver", start="waits", phase="Pending", ready=False, revision=NEW)
    world = at(make_world, "pod-restart-required", gpu="1db1", operands=(), pods=(pod,))
    (crash,) = [action for action in operands.act(world) if isinstance(action, Crash)]
    pod.crash = crash.message
    pod.revision = NEW
    failed, event = upgrade.act(world)
    assert failed.labels == {keys.UPGRADE_STATE: "upgrade-failed"}
    assert "R580 is the last branch that does" in event.message
    world.node.labels[keys.UPGRADE_STATE] = "upgrade-failed"
    assert upgrade.act(world) == []


def test_a_change_of_no_weight_restarts_the_pod_and_moves_nobody(make_world: Any) -> None:
    def begun(digest: str, annotations: dict[str, str] | None = None) -> list[Any]:
        world = at(make_world, "upgrade-required", annotations=annotations)
        driver = world.running("driver")
        driver.template = replace(driver.template, env=((upgrade.DIGEST, digest),))
        return upgrade.begin(world)

    everything = NodeMeta("upgrade-controller", {keys.UPGRADE_STATE: "cordon-required"})
    assert begun("d1") == [everything]
    assert begun("") == [everything]
    restart = NodeMeta("upgrade-controller", {keys.UPGRADE_STATE: "pod-restart-required"})
    assert begun("d2") == [Cordon(True), restart]
    (asked,) = begun("d2", {keys.UPGRADE_REQUESTED: "true"})
    assert asked.labels == everything.labels
    assert asked.annotations == {keys.UPGRADE_REQUESTED: None}


def test_an_upgrade_that_somebody_asks_for(make_world: Any) -> None:
    world = at(make_world, "upgrade-done", NEW, annotations={keys.UPGRADE_REQUESTED: "true"})
    assert state_after(world) == "upgrade-required"


# Who may begin.


def nodes(*states: str, away: int = 0, cordoned: tuple[str, ...] = (), skip: str = "") -> list[Managed]:
    found = []
    for index, state in enumerate(states):
        name = f"n{index}"
        gone = index >= len(states) - away or name in cordoned
        found.append(Managed(name, state, not gone, name in cordoned, name == skip))
    return found


R, D, X = "upgrade-required", "upgrade-done", "pod-restart-required"
ADMITTED: dict[str, tuple[list[Managed], Policy, list[str]]] = {
    "one at a time": (nodes(R, R, R, R), POLICY, ["n0"]),
    "one is under way": (nodes(X, R, R, R, cordoned=("n0",)), POLICY, []),
    "one has failed and holds the place": (nodes("upgrade-failed", R, R, R, cordoned=("n0",)), POLICY, []),
    "three at a time, but a quarter of eight": (nodes(*[R] * 8), replace(POLICY, parallel=3), ["n0", "n1"]),
    "no limit but the quarter": (nodes(*[R] * 8), replace(POLICY, parallel=0), ["n0", "n1"]),
    "no limit at all": (nodes(R, R, R), replace(POLICY, parallel=0, unavailable=""), ["n0", "n1", "n2"]),
    "a number": (nodes(*[R] * 8), replace(POLICY, parallel=9, unavailable="3"), ["n0", "n1", "n2"]),
    "a node that is not ready counts": (nodes(R, R, R, D, away=1), POLICY, []),
    "a node about to be cordoned counts": (
        nodes("cordon-required", *[R] * 7), replace(POLICY, parallel=0), ["n1"],
    ),
    "one that is cordoned already may always begin": (nodes(R, R, R, R, cordoned=("n2",)), POLICY, ["n2"]),
    "one that is skipped": (nodes(R, R, R, R, skip="n0"), POLICY, ["n1"]),
    "nobody waits": (nodes(D, D), POLICY, []),
}  # fmt: skip


@pytest.mark.parametrize(("given", "policy", "expected"), ADMITTED.values(), ids=ADMITTED.keys())
def test_who_may_begin(given: list[Managed], policy: Policy, expected: list[str]) -> None:
    assert upgrade_policy.admitted(list(reversed(given)), policy) == expected


def test_the_policy_is_read_as_the_chart_hands_it_over() -> None:
    raw: dict[str, Any] = {
        "autoUpgrade": True,
        "maxParallelUpgrades": 2,
        "maxUnavailable": 3,
        "waitForCompletion": {"podSelector": "a=b"},
        "gpuPodDeletion": {"force": True, "deleteEmptyDir": False},
        "drain": {"enable": True, "force": True, "podSelector": "c"},
    }
    both = Removal(force=True, scratch=False)
    assert upgrade_policy.read(json.dumps(raw)) == Policy(2, "3", "a=b", both, replace(both, selector="c"))
    assert upgrade_policy.read(json.dumps({**raw, "autoUpgrade": False})) is None
    assert upgrade_policy.read("") is None
    least = upgrade_policy.read('{"autoUpgrade": true, "maxUnavailable": null}')
    assert least == Policy(1, "", "", Removal(force=False, scratch=False), None)


SELECTED = [("", True), ("a=b", True), ("a==b", True), ("a=c", False), ("a", True), ("x", False),
            ("a=b,x!=y", True), ("a=b,a!=b", False)]  # fmt: skip


@pytest.mark.parametrize(("selector", "expected"), SELECTED)
def test_selectors(selector: str, expected: bool) -> None:
    assert upgrade_policy.matches(selector, {"a": "b"}) is expected


# The driver's init container.

ON = {f"{keys.DEPLOY}{name}": "true" for name in driver_manager.CLIENTS}
OFF = dict.fromkeys(ON, driver_manager.PAUSED)
OLD = {keys.DRIVER_LABEL: "580.126.09"}


def coming(make_pod: Any, **fields: Any) -> Any:
    return make_pod("driver-2", "driver", start="waits", phase="Pending", ready=False, **fields)


def test_who_uses_the_old_driver_is_sent_away_before_another_is_loaded(
    make_world: Any, make_pod: Any
) -> None:
    busy = ("toolkit", "device-plugin")
    world = make_world(labels={**OLD, **ON}, operands=busy, pods=(coming(make_pod),))
    assert [a for a in operands.act(world) if isinstance(a, NodeMeta)] == [NodeMeta("driver-manager", OFF)]
    world = make_world(labels={**OLD, **OFF}, operands=busy, pods=(coming(make_pod),))
    assert [a for a in operands.act(world) if isinstance(a, NodeMeta | Annotate)] == []
    job = make_pod("job", "cuda-validator", phase="Succeeded", start="")
    driver = coming(make_pod)
    world = make_world(labels={**OLD, **OFF}, operands=(), pods=(driver, job))
    assert operands.act(world) == [
        Delete(job),
        NodeMeta("driver-manager", ON),
        Annotate(driver, {keys.START: "granted"}, "starts"),
    ]


@pytest.mark.parametrize("loaded", [{}, {keys.DRIVER_LABEL: "595.91.07"}])
def test_a_first_driver_and_the_same_again_send_nobody_away(
    make_world: Any, make_pod: Any, loaded: dict[str, str]
) -> None:
    driver = coming(make_pod)
    world = make_world(labels={**loaded, **ON}, operands=("toolkit",), pods=(driver,))
    assert Annotate(driver, {keys.START: "granted"}, "starts") in operands.act(world)
