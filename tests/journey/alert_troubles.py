"""The faults of ``test_alerts``: how each is provoked, which alerts follow, and how it is repaired."""

from __future__ import annotations

from typing import Any

from infra.model.health import HEALTH
from infra.model.labels import DRIVER_UPGRADE_STATE
from lab.simulator import keys
from tests.journey.alert_elsewhere import elastic, health
from tests.journey.alert_hardware import hardware, nodes
from tests.journey.alert_objects import WORK, pod
from tests.journey.alert_trouble import (
    GPU,
    SHARE,
    SLICE,
    Act,
    Json,
    Trouble,
    at,
    each,
    gone,
    make,
    on,
)
from tests.journey.alerts_world import World


def _upgrading(whole_2: str, whole_3: str) -> Act:
    """Nodes get the state label that NVIDIA's upgrade controller would leave."""

    def label(world: World) -> None:
        for node, state in (("whole-2", whole_2), ("whole-3", whole_3)):
            world.kubectl("label", "node", node, f"{DRIVER_UPGRADE_STATE}{state}", "--overwrite")

    return label


def _kept() -> Json:
    one = pod("kept", {GPU: 1}, **on("whole-3"))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kept", "namespace": WORK},
        "spec": {
            "selector": {"matchLabels": {"app": "kept"}},
            "template": {"metadata": {"labels": {"app": "kept"}}, "spec": one["spec"]},
        },
    }


def _poor() -> tuple[Json, ...]:
    """A namespace with a GPU quota of 0, and a Deployment there that requests one."""
    template = pod("wants", {GPU: 1})["spec"]
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "poor"}},
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": "poor"},
            "spec": {"hard": {f"requests.{GPU}": "0"}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "wants", "namespace": "poor"},
            "spec": {
                "selector": {"matchLabels": {"app": "wants"}},
                "template": {"metadata": {"labels": {"app": "wants"}}, "spec": template},
            },
        },
    )


def _pends(reason: str, name: str, asks: dict[str, int], **spec: Any) -> Trouble:
    fires = ("GpuPodPending", {"namespace": WORK, "pod": name, "reason": reason})
    return Trouble(f"a pod that waits: {reason}", make(pod(name, asks, **spec)), gone("pod", name), (fires,))


def _holders() -> tuple[Trouble, ...]:
    """Pods that hold GPUs, so that others get none, and two on nodes with a driver upgrade."""
    sharers = [pod(f"sharer-{number}", {SHARE: 1}, **on(f"shares-{number // 4}")) for number in range(7)]
    parts = [pod(f"part-{number}", {GPU: 1}, **on("parts-0")) for number in range(2)]
    parts += [pod(f"one-of-{node}", {GPU: 1}, **on(f"whole-{node}")) for node in (1, 4, 5)]
    full = [pod(f"filler-{node}", {SLICE: 7}, **on(f"slices-{node}")) for node in (0, 1, 3)]
    idle = pod("idle", {GPU: 1}, {keys.LOAD: "idle"}, **on("whole-0"))
    greedy = pod("greedy", {SHARE: 1}, {keys.MEMORY: "all"}, **on("shares-1"))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": WORK},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}},
    }
    names = [one["metadata"]["name"] for one in (*sharers, *parts, *full)]
    return (
        Trouble(
            "a notebook that was left open",
            make(idle),
            gone("pod", "idle"),
            (("GpuAllocatedIdle", at("whole-0", pod="idle", namespace=WORK)),),
        ),
        Trouble(
            "a pod that takes a shared GPU's memory",
            make(*sharers, greedy),
            gone("pod", "greedy"),
            (
                ("GpuSharedMemoryNearlyFull", at("shares-1", pod="greedy")),
                ("GpuSharedMemoryNearlyFull", at("shares-1", pod="sharer-4")),
            ),
        ),
        Trouble(
            "pods that take all there is of some resources",
            make(*parts, *full, pod("alone", {GPU: 1}, **on("whole-2")), budget, _kept()),
            gone("pod", *names),
            (),
        ),
        Trouble(
            "driver upgrades that failed or are stuck",
            _upgrading("=upgrade-failed", "=pod-deletion-required"),
            each(
                gone("poddisruptionbudget", "kept"),
                gone("pod", "alone"),
                gone("deployment", "kept"),
                _upgrading("-", "-"),
            ),
            (
                ("GpuDriverUpgradeFailed", at("whole-2", state="upgrade-failed")),
                ("GpuDriverUpgradeStuck", at("whole-3", state="pod-deletion-required")),
            ),
            played="NVIDIA's upgrade controller: the nodes' labels are set by hand",
        ),
    )


def _waiting() -> tuple[Trouble, ...]:
    """Pods that get no GPU, each for another reason."""
    return (
        _pends("no_such_resource", "strange", {"nvidia.com/nonesuch": 1}),
        _pends("too_large", "giant", {GPU: 64}),
        _pends("unschedulable", "picky", {GPU: 1}, nodeSelector={"nowhere": "at-all"}),
        _pends("not_ready", "early", {SLICE: 1}),
        _pends("pool_full", "late", {SHARE: 1}),
        Trouble(
            "a pod that would fit if what is free were on one node",
            make(pod("whole-node", {GPU: 8})),
            gone("pod", "whole-node"),
            (("GpuFragmentation", {"namespace": WORK, "pod": "whole-node"}),),
        ),
        Trouble(
            "a namespace that has used its quota",
            make(*_poor()),
            gone("namespace", "poor", namespace="default"),
            (("GpuPodPending", {"namespace": "poor", "deployment": "wants", "reason": "quota"}),),
        ),
    )


ROUND_ONE = (*_holders(), *nodes(), *_waiting(), *elastic(), *health(), *hardware())
"""All at once, each on its own GPU, node or pod."""


def _exporters(down: bool) -> Act:
    value = '[{"kind": "exporter-down", "since": "2026-01-01T00:00:00.000+00:00"}]' if down else None
    note = f"{keys.FAULTS}={value}" if down else f"{keys.FAULTS}-"
    return lambda world: world.kubectl("annotate", "node", *world.nodes(), note, "--overwrite")


def _scale(count: int) -> Act:
    words = ("deployment", "monitoring-kube-state-metrics", "-n", "monitoring", f"--replicas={count}")
    return lambda world: world.kubectl("scale", *words)


ROUND_TWO = (
    Trouble(
        "not one exporter",
        _exporters(down=True),
        _exporters(down=False),
        (("GpuMonitoringBlind", {}),),
    ),
    Trouble(
        "a health loop that is not there any more",
        lambda world: world.take("deployment", HEALTH, HEALTH),
        lambda world: world.apply(world.kept.pop(HEALTH)),
        (("GpuHealthRemediatorAbsent", {}),),
    ),
)
"""Faults that remove other alerts' metrics, after all of the first round is repaired."""
ROUND_THREE = (Trouble("no kube-state-metrics", _scale(0), _scale(1), (("GpuStateMetricsAbsent", {}),)),)
"""Removes the source of the other alerts' series."""
