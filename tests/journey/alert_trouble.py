from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.journey.alert_objects import WORK
from tests.journey.alerts_world import World

GPU, SLICE, SHARE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"
Act = Callable[[World], object]
Labels = Mapping[str, str]
Json = dict[str, Any]


@dataclass(frozen=True)
class Trouble:
    """One provoked fault, and every alert that must follow, with labels that it must have.

    ``played`` says what the test replaces because it does not run on an embedded cluster.
    """

    what: str
    provoke: Act
    heal: Act
    fires: tuple[tuple[str, Labels], ...]
    played: str = ""


def at(node: str, gpu: int | None = None, **more: str) -> Labels:
    return {
        "node": node,
        "pool": node.rpartition("-")[0],
        **({} if gpu is None else {"gpu": str(gpu)}),
        **more,
    }


def each(*acts: Act) -> Act:
    return lambda world: [act(world) for act in acts]


def fault(node: str, gpu: int | None, *words: str) -> Act:
    which = () if gpu is None else ("--gpu", str(gpu))
    return lambda world: world.fault(node, *which, *words)


def on(node: str) -> Json:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def make(*documents: Json) -> Act:
    return lambda world: world.apply(*documents)


def gone(kind: str, *names: str, namespace: str = WORK) -> Act:
    return lambda world: world.delete(kind, *names, namespace=namespace)


def broken(what: str, node: str, gpu: int, words: str, *fires: tuple[str, Labels]) -> Trouble:
    return Trouble(what, fault(node, gpu, *words.split()), fault(node, gpu, "--clear"), fires)
