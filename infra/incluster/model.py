"""Values of the health loop: faults, nodes, settings, past actions and steps; reads faults from Prometheus.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from infra.incluster.cluster import TIMEOUT_S

RANK = {"reset": 1, "replace": 2}
"""Classes that are acted on; others (application, informational) are ignored."""

Json = dict[str, Any]
_RECORDED = '{job=""}'
"""Matches no scraped series of a recorded one's name: each scraped one has a job."""
SERIES = f"gpuform:fault:active{_RECORDED}"
_MEASURED_GPUS = f"count by (node) (group by (node,gpu) (gpuform:gpu:temperature_celsius{_RECORDED}))"
_DECLARED_GPUS = f"max by (node) (gpuform:node:gpus{_RECORDED})"
MEASURED = f"{_MEASURED_GPUS} >= on (node) ({_DECLARED_GPUS} or on (node) {_MEASURED_GPUS})"
"""Nodes with as many measured GPUs as their pool declares; any number if it declares none."""
CLASSES = ("application", "informational", "reset", "replace")
MAX_ANSWER_BYTES = 16 * 2**20  # 100 000 series are less


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
    def from_id(id: str) -> Fault:
        """The fault with this id; without its GPU's index if it has a UUID."""
        node, _, tail = id.partition("|")
        gpu, xid, kind, reason = tail.rsplit("|", 3)
        return Fault(node, *((gpu, "") if gpu.isdecimal() else ("", gpu)), xid, kind, reason)

    @property
    def text(self) -> str:
        gpu = f"GPU {self.gpu or '?'}" + (f" ({self.uuid})" if self.uuid else "")
        return f"{gpu}: {f'XID {self.xid}' if self.xid else self.reason or 'fault'}, class {self.kind}"


@dataclass(frozen=True)
class Node:
    """A node of a GPU pool; times in seconds since 1970."""

    name: str
    uid: str
    first_seen: float
    """When this run of the loop first saw it: independent of other machines' clocks."""
    boot_id: str
    missing: str
    """What it lacks of its pool's promise, in words; empty if it is Ready and offers all of it."""
    record: Json | None = None
    """What the loop recorded on it: class, action, faults, boot id."""
    taint: str | None = None
    """Value of our taint; None without it."""
    repaired: str | None = None
    """What a person wrote about its repair; None before that."""
    measured: bool = True
    """Whether Prometheus has current measurements of all its GPUs."""


@dataclass(frozen=True)
class Settings:
    """The declared settings; times in seconds."""

    mode: str
    budget: float
    max_actions: int | None
    window_s: float
    settle_s: float

    @property
    def is_acting(self) -> bool:
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
    def from_json(data: Json) -> State:
        """From JSON, also of earlier loops, which replaced nodes; TypeError for unknown keys."""
        state = State(**{key: value for key, value in data.items() if key != "rebuilds"})
        for action in state.actions:
            action["action"] = "ticket" if action["action"] == "replace" else action["action"]
        return state

    def to_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """One thing to do to a node, for a class and faults; ``at`` identifies its action in the state."""

    action: str
    node: str
    kind: str = ""
    faults: tuple[Fault, ...] = ()
    reason: str = ""
    at: float = 0.0


def get_faults(server: str, secret: Path | None = None) -> list[Fault]:
    """Every active fault; raises one of ``TROUBLE`` if Prometheus is unreachable or its answer invalid.

    ``secret`` is the folder of a mounted Secret, with ``username`` and ``password``, or ``token``.
    """
    return parse_faults(_query(server, SERIES, secret))


def get_measured_nodes(server: str, secret: Path | None = None) -> frozenset[str]:
    """Nodes with all GPUs measured now; raises as ``faults`` does."""
    return parse_nodes(_query(server, MEASURED, secret))


def _query(server: str, expression: str, secret: Path | None) -> Any:
    parameters = urllib.parse.urlencode({"query": expression})
    url = f"{server.rstrip('/')}/api/v1/query?{parameters}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{server} is not an http(s) address")
    request = urllib.request.Request(url)  # noqa: S310 (checked above)
    if secret:  # which is read again for each query, as it may be rotated, and not sent to another address
        request.add_unredirected_header("Authorization", _authorization(secret))
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 (checked above)
        text = answer.read(MAX_ANSWER_BYTES + 1)
    if len(text) > MAX_ANSWER_BYTES:
        raise ValueError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    return json.loads(text)


def _authorization(secret: Path) -> str:
    if (secret / "token").exists():
        token = (secret / "token").read_text().rstrip("\r\n")
        if not all("!" <= letter <= "~" for letter in token):  # http.client would print it in its error
            raise ValueError("the token of its Secret is not one word of ASCII")
        return f"Bearer {token}"
    pair = ":".join((secret / key).read_text().rstrip("\r\n") for key in ("username", "password"))
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def parse_faults(answer: Any) -> list[Fault]:
    """The faults in an answer; ValueError if any part of it is invalid.

    One unreadable series rejects the whole answer: the readable part may be the wrong one.
    """
    try:
        metrics = [series["metric"] for series in _result_vector(answer) if float(series["value"][1]) == 1]
        return [fault for fault in map(_parse_fault, metrics) if fault.node]  # else its place is unknown
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"its answer has no {error}" if isinstance(error, KeyError) else str(error)
        ) from None


def parse_nodes(answer: Any) -> frozenset[str]:
    """The nodes in an answer; ValueError if any part of it is invalid."""
    try:
        return frozenset(str(series["metric"]["node"]) for series in _result_vector(answer))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"its answer does not name nodes: {error}") from None


def _result_vector(answer: Any) -> list[Any]:
    if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
        raise ValueError(f"it answers {str(answer)[:200]}")
    result: list[Any] = answer["data"]["result"]
    return result


def _parse_fault(labels: dict[str, str]) -> Fault:
    kind, node = labels["class"], labels.get("node", "")
    if kind not in CLASSES:
        raise ValueError(f"a fault of node {node!r} has class {kind!r}; known: {', '.join(CLASSES)}")
    values = {key: str(labels.get(key, "")) for key in ("gpu", "UUID", "xid", "reason")}
    return Fault(node, values["gpu"], values["UUID"], values["xid"], kind, values["reason"])
