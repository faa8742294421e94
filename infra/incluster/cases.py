"""What the health loop judges: faults, nodes, what was declared, what was done before, and what it decides.

Plain values without a server behind them; beside the loop, in the same ConfigMap. Standard library alone,
Python 3.11 or newer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

RANK = {"reset": 1, "replace": 2}
"""Classes that are acted on; of others (application, informational) nothing is known here."""

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
        """The same for as long as it is the same fault of the same GPU on a node of that name."""
        return "|".join((self.node, self.uuid or self.gpu, self.xid, self.kind, self.reason))

    @property
    def words(self) -> str:
        """For people."""
        gpu = f"GPU {self.gpu or '?'}" + (f" ({self.uuid})" if self.uuid else "")
        return f"{gpu}: {f'XID {self.xid}' if self.xid else self.reason or 'fault'}, class {self.kind}"


@dataclass(frozen=True)
class Node:
    """A node of a pool with GPUs, as far as it matters here; times in seconds since 1970."""

    name: str
    uid: str
    created: float
    boot: str
    missing: str
    """What it lacks of what its pool promises, in words; empty where it is Ready and offers all of it."""
    record: Json | None = None
    """What the loop has noted on it: class, action, faults, boot."""
    taint: str | None = None
    """Value of our taint."""
    repaired: str | None = None
    """What a person has said of its repair."""
    claim: bool = False
    """Whether Karpenter made it."""
    pinned: bool = False
    """Whether it must not be disrupted."""
    measured: bool = True
    """Whether Prometheus has measurements of all its GPUs now."""


@dataclass(frozen=True)
class Settings:
    """What was declared; times in seconds."""

    mode: str
    budget: float
    most: int | None
    window_s: float
    settle_s: float

    @property
    def acts(self) -> bool:
        """Whether any node is changed."""
        return self.mode != "observe"


@dataclass
class State:
    """What was done, so that it is not done again, and not too often."""

    observed: bool = False
    """Whether it tells of what would have been done."""
    actions: list[Json] = field(default_factory=list)
    spent: dict[str, str] = field(default_factory=dict)
    """Faults that were acted on, with the node's uid of then."""
    breaker: Json | None = None

    @staticmethod
    def of(found: Json) -> State:
        """As it was written, also by a loop that had Magnum replace nodes; TypeError for anything else."""
        return State(**{key: value for key, value in found.items() if key != "rebuilds"})

    def to_json(self) -> Json:
        """As it is written."""
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One thing to do: what, to which node, for which class and faults, and why; ``at`` names its action."""

    action: str
    node: str
    kind: str = ""
    faults: tuple[Fault, ...] = ()
    why: str = ""
    at: float = 0.0
