"""Values of the health loop: faults, nodes, settings, past actions and steps; reads faults from Prometheus.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass, field
from typing import Any

from infra.incluster.cluster import TIMEOUT_S

RANK = {"reset": 1, "replace": 2}
"""Classes that are acted on; others (application, informational) are ignored."""

Json = dict[str, Any]
_RECORDED = '{job=""}'
"""Matches no scraped series of a recorded one's name: each scraped one has a job."""
SERIES = f"gpuform:fault:active{_RECORDED}"
_SHOWN = f"count by (node) (group by (node,gpu) (gpuform:gpu:temperature_celsius{_RECORDED}))"
_DECLARED = f"max by (node) (gpuform:node:gpus{_RECORDED})"
MEASURED = f"{_SHOWN} >= on (node) ({_DECLARED} or on (node) {_SHOWN})"
"""Nodes with as many measured GPUs as their pool declares; any number if it declares none."""
CLASSES = ("application", "informational", "reset", "replace")
LONGEST_ANSWER = 16 * 2**20  # bytes of an answer; 100 000 series are less


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


def faults(server: str) -> list[Fault]:
    """Every active fault; raises one of ``TROUBLE`` if Prometheus is unreachable or its answer invalid."""
    return read(_answer(server, SERIES))


def measured(server: str) -> frozenset[str]:
    """Nodes with all GPUs measured now; raises as ``faults`` does."""
    return names(_answer(server, MEASURED))


def _answer(server: str, expression: str) -> Any:
    query = urllib.parse.urlencode({"query": expression})
    url = f"{server.rstrip('/')}/api/v1/query?{query}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{server} is not an http(s) address")
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 (checked above)
        text = answer.read(LONGEST_ANSWER + 1)
    if len(text) > LONGEST_ANSWER:
        raise ValueError(f"its answer is longer than {LONGEST_ANSWER} bytes")
    return json.loads(text)


def read(answer: Any) -> list[Fault]:
    """The faults in an answer; ValueError if any part of it is invalid.

    One unreadable series rejects the whole answer: the readable part may be the wrong one.
    """
    try:
        found = [one["metric"] for one in _vector(answer) if float(one["value"][1]) == 1]
        return [fault for fault in map(_fault, found) if fault.node]  # else its place is unknown
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"its answer has no {error}" if isinstance(error, KeyError) else str(error)
        ) from None


def names(answer: Any) -> frozenset[str]:
    """The nodes in an answer; ValueError if any part of it is invalid."""
    try:
        return frozenset(str(one["metric"]["node"]) for one in _vector(answer))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"its answer does not name nodes: {error}") from None


def _vector(answer: Any) -> list[Any]:
    if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
        raise ValueError(f"it answers {str(answer)[:200]}")
    found: list[Any] = answer["data"]["result"]
    return found


def _fault(labels: dict[str, str]) -> Fault:
    kind, node = labels["class"], labels.get("node", "")
    if kind not in CLASSES:
        raise ValueError(f"a fault of node {node!r} has class {kind!r}; known: {', '.join(CLASSES)}")
    own = {key: str(labels.get(key, "")) for key in ("gpu", "UUID", "xid", "reason")}
    return Fault(node, own["gpu"], own["UUID"], own["xid"], kind, own["reason"])
