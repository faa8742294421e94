"""Values of the health loop: faults, nodes, settings, past actions and steps.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

RANK = {"reset": 1, "replace": 2}
"""Classes that are acted on; others (application, informational) are ignored."""

Json = dict[str, Any]


@dataclass(frozen=True, order=True)
class Fault:
    """One series of ``gpuform:fault:active``."""

    node: str
    gpu: str
    uuid: str
    xid: str
    kind: str
    reason: str

    @property
    def id(self) -> str:
        """Identifies the same fault of the same GPU on a node of that name."""
        return "|".join((self.node, self.uuid or self.gpu, self.xid, self.kind, self.reason))

    @staticmethod
    def of(id: str) -> Fault:
        """The fault with this id; without its GPU's index if it has a UUID."""
        node, _, rest = id.partition("|")
        gpu, xid, kind, reason = rest.rsplit("|", 3)
        return Fault(node, *((gpu, "") if gpu.isdecimal() else ("", gpu)), xid, kind, reason)

    @property
    def words(self) -> str:
        gpu = f"GPU {self.gpu or '?'}" + (f" ({self.uuid})" if self.uuid else "")
        return f"{gpu}: {f'XID {self.xid}' if self.xid else self.reason or 'fault'}, class {self.kind}"


@dataclass(frozen=True)
class Node:
    """A node of a GPU pool; times in seconds since 1970."""

    name: str
    uid: str
    since: float
    """When this run of the loop first saw it: independent of other machines' clocks."""
    boot: str
    missing: str
    """What it lacks of its pool's promise, in words; empty if it is Ready and offers all of it."""
    record: Json | None = None
    """What the loop recorded on it: class, action, faults, boot id."""
    taint: str | None = None
    """Value of our taint; None without it."""
    repaired: str | None = None
    """What a person wrote about its repair; None before that."""
    claim: bool = False
    """Whether Karpenter created it."""
    pinned: bool = False
    """Whether an annotation forbids its disruption."""
    measured: bool = True
    """Whether Prometheus has current measurements of all its GPUs."""


@dataclass(frozen=True)
class Settings:
    """The declared settings; times in seconds."""

    mode: str
    budget: float
    most: int | None
    window_s: float
    settle_s: float

    @property
    def acts(self) -> bool:
        return self.mode != "observe"


@dataclass
class State:
    """Past actions: prevents repeating them and exceeding the budget."""

    observed: bool = False
    """Whether the actions were only observed, not carried out."""
    actions: list[Json] = field(default_factory=list)
    spent: dict[str, str] = field(default_factory=dict)
    """Faults that were acted on, with the node's uid at that time."""
    breaker: Json | None = None

    @staticmethod
    def of(found: Json) -> State:
        """From JSON, also of loops that had Magnum replace nodes (``rebuilds``); TypeError for other keys."""
        return State(**{key: value for key, value in found.items() if key != "rebuilds"})

    def to_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One thing to do to a node, for a class and faults; ``at`` identifies its action in the state."""

    action: str
    node: str
    kind: str = ""
    faults: tuple[Fault, ...] = ()
    why: str = ""
    at: float = 0.0
