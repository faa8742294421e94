"""Every alert is provoked on a real control plane, and seen pending or firing in the real Prometheus.

Three rounds, each with all its faults of ``alert_troubles`` at once. promtool tests durations and that
alerts end (tests/plan/rules). The table also says what the tests stand in for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.journey import alerts_world
from tests.journey.alert_objects import WORK
from tests.journey.alert_trouble import Labels, Trouble
from tests.journey.alert_troubles import ROUND_ONE, ROUND_THREE, ROUND_TWO
from tests.journey.alerts_world import Firing, World, declare
from tests.journey.conftest import close, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]
TROUBLES = (*ROUND_ONE, *ROUND_TWO, *ROUND_THREE)
EXPECTED = [(trouble, name, labels) for trouble in TROUBLES for name, labels in trouble.fires]
SERVING = ("GpuColdStartSlow", "GpuQueueStalled", "GpuScaledToMost", "GpuScalingFailed")
NOT_HERE = {
    "GpuUnhealthyTaintStuck": "a node must have the taint for four hours",
    **dict.fromkeys(SERVING, "the stack has neither queues nor scaled workloads"),
}
"""Alerts that cannot be provoked on an embedded cluster, and why; only promtool tests them."""
QUIET_S, FIRE_S = 90.0, 200.0


@dataclass
class Seen:
    """Alerts that fired before any fault (``quiet``), and expected alerts that came."""

    quiet: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    fired: set[int] = field(default_factory=set)
    taints: dict[str, str | None] = field(default_factory=dict)
    """Taints of the health loop on the nodes at the end of any round."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    checkout = make_checkout(tmp_path_factory.mktemp("alerts"))
    declare(checkout.paths)
    try:
        checkout.gpuform("local", "up")
        found = World(checkout)
        try:
            found.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WORK}})
            yield found
        finally:
            found.close()
    finally:
        close(checkout)


@pytest.fixture(scope="module")
def seen(world: World) -> Seen:
    """Results of all rounds; asserts nothing, so that each alert has its own test."""
    found = Seen()
    world.until("measurements", lambda: world.query("gpuform:device:util_ratio"), QUIET_S)
    time.sleep(60)  # two evaluations of every rule
    found.quiet = world.firing().found
    first = 0
    for round_ in (ROUND_ONE, ROUND_TWO, ROUND_THREE):
        first += _play(world, round_, found, first)
    return found


def _taints(world: World) -> dict[str, str | None]:
    return {node: taint for node in world.nodes() if (taint := world.taint(node))}


class Watch(threading.Thread):
    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world, self._over = world, threading.Event()
        self._ever: dict[str, list[dict[str, str]]] = {}

    def run(self) -> None:
        while not self._over.wait(alerts_world.POLL_S):
            for name, found in self._world.firing().found.items():
                known = self._ever.setdefault(name, [])
                known += [labels for labels in found if labels not in known]

    @property
    def ever(self) -> Firing:
        return Firing(dict(self._ever))

    def stop(self) -> None:
        self._over.set()
        self.join(30)


def _play(world: World, troubles: Sequence[Trouble], found: Seen, first: int) -> int:
    """Provoke, watch, heal; returns the number of expected alerts."""
    expected = dict(enumerate((fire for trouble in troubles for fire in trouble.fires), first))
    watch = Watch(world)
    watch.start()
    try:
        for trouble in troubles:
            trouble.provoke(world)
        _note(expected, found.fired, lambda name, labels: watch.ever.has(name, labels), FIRE_S)
        found.taints |= _taints(world)
        for trouble in reversed(troubles):
            trouble.heal(world)
    finally:
        watch.stop()
    return len(expected)


def _note(
    wanted: Mapping[int, tuple[str, Labels]],
    noted: set[int],
    so: Callable[[str, Labels], bool],
    seconds: float,
) -> None:
    deadline = time.monotonic() + seconds
    while (missing := set(wanted) - noted) and time.monotonic() < deadline:
        noted |= {number for number in missing if so(*wanted[number])}
        time.sleep(alerts_world.POLL_S)


def test_a_stack_without_trouble_is_quiet(seen: Seen) -> None:
    assert seen.quiet == {}


def test_every_rule_is_in_prometheus_and_can_be_evaluated(world: World) -> None:
    rules = world.until(
        "rules are evaluated", lambda: all(r["health"] != "unknown" for r in world.rules()) and world.rules()
    )
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    made = {rule["name"] for rule in rules if rule["type"] == "alerting"}
    assert {one.name for one in world.declared()} <= made


def test_the_table_has_every_alert(world: World) -> None:
    provoked = {name for _, name, _ in EXPECTED}
    assert not provoked & set(NOT_HERE)
    assert provoked | set(NOT_HERE) == {one.name for one in world.declared()}


@pytest.mark.parametrize(
    ("number", "name"),
    [(number, name) for number, (_, name, _) in enumerate(EXPECTED)],
    ids=[f"{name}: {trouble.what}" for trouble, name, _ in EXPECTED],
)
def test_it_comes(seen: Seen, number: int, name: str) -> None:
    trouble, _, labels = EXPECTED[number]
    assert number in seen.fired, f"{name} {dict(labels)} did not fire for {trouble.what}"


def test_the_health_loop_keeps_pods_off_a_lost_gpu_and_stops_at_its_budget(seen: Seen) -> None:
    """XID 79 in the simulator ends as a taint on its node only, although many nodes have faults."""
    assert seen.taints == {"whole-5": "replace"}
