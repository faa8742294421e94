"""Events, and by those of the scheduler and of Karpenter why a pod is pending, in words.

The texts are those of kube-scheduler 1.34 and Karpenter 1.14. The original event text is always shown as
well, so an unknown text is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpuform.usage.nodes import Json
from infra.model import labels

SCHEDULER = "default-scheduler"
KARPENTER = "karpenter"
TOLD = "FailedScheduling"
"""Reason of the events that say why a pod is pending."""

_HEAD = re.compile(r"0/(\d+) nodes are available: (.*)", re.DOTALL)
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)
_INSUFFICIENT = re.compile(r"Insufficient (\S+)")
_TAINT = re.compile(r"node\(s\) had untolerated taint(?:\(s\)| \{([^:}]+).*\})")
_NODE_TEXTS = {
    "Too many pods": "have their maximum number of pods",
    "node(s) didn't match Pod's node affinity/selector": "are not in its pool",
    "node(s) were unschedulable": "are cordoned",
    "cannot allocate all claims": "cannot allocate its claims",
}


@dataclass(frozen=True)
class Event:
    """A controller's last event about an object; ``when`` as the API writes it, to the second."""

    kind: str
    namespace: str
    name: str
    source: str
    reason: str
    message: str
    when: str = ""


def event(raw: Json) -> Event:
    """The record of an Event, written by either of the two event APIs."""
    about = raw.get("involvedObject", {})
    return Event(
        kind=about.get("kind", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        source=raw.get("reportingComponent") or raw.get("source", {}).get("component", ""),
        reason=raw.get("reason", ""),
        message=raw.get("message", ""),
        when=_when(raw),
    )


def latest(raw: Iterable[Json]) -> list[Event]:
    """The last event of each object, source and reason, oldest first."""
    found: dict[tuple[str, ...], Event] = {}
    for one in sorted(raw, key=_when):
        seen = event(one)
        key = (seen.kind, seen.namespace, seen.name, seen.source, seen.reason)
        found.pop(key, None)
        found[key] = seen
    return list(found.values())


def _when(raw: Json) -> str:
    times = (
        (raw.get("series") or {}).get("lastObservedTime"),
        raw.get("lastTimestamp"),
        raw.get("eventTime"),
        raw.get("metadata", {}).get("creationTimestamp"),
    )
    # To the second: only one of the two APIs writes microseconds.
    return str(next((time for time in times if time), ""))[:19]


def words(events: Iterable[Event], empty: Iterable[str] = ()) -> str:
    """The reason in one sentence; empty if no event gives one.

    ``empty`` are the NodePools of the pod's pool for which Karpenter has reported no available instance type;
    it then leaves them out of the pod's event.
    """
    told = [one for one in events if one.reason == TOLD]
    bought = [karpenter(one.message, empty) for one in told if one.source == KARPENTER]
    placed = [scheduler(one.message) for one in told if one.source != KARPENTER]
    return "; ".join([*placed[-1:], *bought[-1:]])


def scheduler(message: str) -> str:
    """The scheduler's message in words: missing resources first, then nodes that are not allowed."""
    head = _HEAD.match(message)
    if not head:
        return f"scheduler: {message}" if message else ""
    count, rest = int(head[1]), head[2]
    # What follows the first full stop is about preemption, and about claims that could be taken back.
    reasons = rest.split(". ")[0].removesuffix(".")
    parsed = [_COUNTED.fullmatch(part) for part in re.split(r", (?=\d+ )", reasons)]
    if not all(parsed):
        return f"scheduler: {reasons}"
    parts = sorted((_node(int(one[1]), one[2]) for one in parsed if one), key=lambda part: part[0])
    return f"0 of {count} nodes fit: " + ", ".join(text for _, text in parts)


def _node(count: int, text: str) -> tuple[int, str]:
    """A rank, lower if the pod nearly fits there, and the words."""
    if missing := _INSUFFICIENT.fullmatch(text):
        return 0, f"{count} {_have(count)} insufficient {_short(missing[1])}"
    if taint := _TAINT.fullmatch(text):
        named = f" {taint[1]}" if taint[1] else ""
        return 2, f"{count} {_have(count)} a taint{named} that it does not tolerate"
    known = _NODE_TEXTS.get(text)
    if known is None:
        return 1, f"{count}: {text}"
    one = known.replace("have their ", "has its ", 1) if known.startswith("have") else known
    return (
        1 if "pool" not in known else 3,
        f"{count} {one.replace('are ', 'is ', 1) if count == 1 else known}",
    )


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _short(resource: str) -> str:
    return resource.removeprefix(labels.NVIDIA_PREFIX)


def karpenter(message: str, empty: Iterable[str] = ()) -> str:
    """Karpenter's message in words: why each suitable NodePool launched no node for the pod."""
    text = message.removeprefix("Failed to schedule pod, ")
    # The errors of several NodePools, and the parts of one, have the same separator.
    parts = list(dict.fromkeys(filter(None, (_bought(part.strip()) for part in text.split("; ")))))
    if not parts:
        parts = [f"NodePool {name} has no available instance type" for name in empty]
    return "Karpenter launches no node: " + ("; ".join(parts) if parts else "no NodePool matches the pod")


def _bought(part: str) -> str:
    for pattern, text in _KARPENTER:
        if found := re.search(pattern, part):
            return text.format(*found.groups(), pool=_pool(part), asked=_resources(part))
    return part


def _pool(part: str) -> str:
    """The NodePool of an error, if the error's requirements name it."""
    found = re.search(rf"{re.escape(labels.NODE_POOL)} In \[([^\]]+)\]", part)
    return f"NodePool {found[1]}" if found else "the pool"


def _resources(part: str) -> str:
    """The requested resources, DaemonSets included, without the number of pods."""
    found = re.search(r"resources=(?:min=)?\{([^}]*)\}", part)
    pairs = re.findall(r'"([^"]+)":"([^"]+)"', found[1]) if found else []
    asked = ", ".join(f"{_short(key)} {value}" for key, value in pairs if key != "pods")
    return f" for {asked}" if asked else ""


_KARPENTER = (
    (
        r"(?:exceed limits|limits have been exhausted) for nodepool \(NodePool=([^)]+)\)",
        "NodePool {0} is at its limit",
    ),
    (r"could not be reserved|all compatible reserved offering", "its reservation is used up"),
    (r"Dynamic Resource Allocation", "it launches no node for a claim (DRA)"),
    # Another pool's NodePool: the pod was never meant for it.
    (rf"^incompatible requirements, .*{re.escape(labels.POOL)}", ""),
    (r"^incompatible requirements, (.*)", "its node requirements match no NodePool ({0})"),
    (r"did not tolerate taint \(taint=([^)]+)\)", ""),
    (r"filtered out all available instance types", "no NodePool has an available instance type"),
    (r"the required offering (?:met|had)", "{pool} has no instance type that meets all requirements"),
    (
        r"had enough resources or had a required offering",
        "{pool} has no instance type that is large enough{asked}, nor an available one",
    ),
    (r"required offering", "{pool} has no available instance type in its zones and capacity types"),
    (r"enough resources", "{pool} has no instance type that is large enough{asked}"),
    (r"no instance type met", "{pool} has no instance type that meets all requirements"),
)
