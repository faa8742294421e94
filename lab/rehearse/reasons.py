"""Events, and by those of the scheduler and of Karpenter why a pod is pending, in words.

The texts are those of kube-scheduler 1.36 and Karpenter 1.14. The original event text is always shown as
well, so an unknown text is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

from gpuform.usage.nodes import Json
from infra.model.base import labels

SCHEDULER = "default-scheduler"
KARPENTER = "karpenter"
FAILED_SCHEDULING = "FailedScheduling"
"""Reason of the events that say why a pod is pending."""

_HEAD = re.compile(r"0/(\d+) nodes are available: (.*)", re.DOTALL)
_COUNTED = re.compile(r"(\d+) (.+)", re.DOTALL)
_INSUFFICIENT = re.compile(r"Insufficient (\S+)")
_TAINT = re.compile(r"node\(s\) had untolerated taint(?:\(s\)| \{([^:}]+).*\})")
_NODE_TEXTS = {
    "Too many pods": (1, "has its maximum number of pods", "have their maximum number of pods"),
    "node(s) didn't match Pod's node affinity/selector": (3, "is not in its pool", "are not in its pool"),
    "node(s) were unschedulable": (1, "is cordoned", "are cordoned"),
    "cannot allocate all claims": (1, "cannot allocate its claims", "cannot allocate its claims"),
}
"""Rank, and the words for one node and for several."""


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


def parse_event(raw: Json) -> Event:
    """The record of an Event, written by either of the two event APIs."""
    subject = raw.get("involvedObject", {})
    return Event(
        kind=subject.get("kind", ""),
        namespace=subject.get("namespace", ""),
        name=subject.get("name", ""),
        source=raw.get("reportingComponent") or raw.get("source", {}).get("component", ""),
        reason=raw.get("reason", ""),
        message=raw.get("message", ""),
        when=_time_of(raw),
    )


def latest_events(raw: Iterable[Json]) -> list[Event]:
    """The last event of each object, source and reason, oldest first."""
    events: dict[tuple[str, ...], Event] = {}
    for item in sorted(raw, key=_time_of):
        parsed = parse_event(item)
        key = (parsed.kind, parsed.namespace, parsed.name, parsed.source, parsed.reason)
        events.pop(key, None)
        events[key] = parsed
    return list(events.values())


def _time_of(raw: Json) -> str:
    times = (
        (raw.get("series") or {}).get("lastObservedTime"),
        raw.get("lastTimestamp"),
        raw.get("eventTime"),
        raw.get("metadata", {}).get("creationTimestamp"),
    )
    # To the second: only one of the two APIs writes microseconds.
    return str(next((time for time in times if time), ""))[:19]


def pending_reason(events: Iterable[Event], empty: Iterable[str] = ()) -> str:
    """The reason in one sentence; empty if no event gives one.

    ``empty`` are the NodePools of the pod's pool for which Karpenter has reported no available instance type;
    it then leaves them out of the pod's event.
    """
    refusals = [event for event in events if event.reason == FAILED_SCHEDULING]
    scheduler = [scheduler_reason(event.message) for event in refusals if event.source != KARPENTER]
    karpenter = [karpenter_reason(event.message, empty) for event in refusals if event.source == KARPENTER]
    return "; ".join([*scheduler[-1:], *karpenter[-1:]])


def scheduler_reason(message: str) -> str:
    """The scheduler's message in words: missing resources first, then nodes that are not allowed."""
    head = _HEAD.match(message)
    if not head:
        return f"scheduler: {message}" if message else ""
    count, details = int(head[1]), head[2]
    # What follows the first full stop is about preemption, and about claims that could be taken back.
    reasons = details.split(". ")[0].removesuffix(".")
    matches = [_COUNTED.fullmatch(part) for part in re.split(r", (?=\d+ )", reasons)]
    if not all(matches):
        return f"scheduler: {reasons}"
    parts = [_node_reason(int(match[1]), match[2]) for match in matches if match]
    return f"0 of {count} nodes fit: " + ", ".join(text for _, text in sorted(parts, key=itemgetter(0)))


def _node_reason(count: int, text: str) -> tuple[int, str]:
    """A rank, lower if the pod nearly fits there, and the words."""
    if missing := _INSUFFICIENT.fullmatch(text):
        return 0, f"{count} {_have(count)} insufficient {_short_name(missing[1])}"
    if taint := _TAINT.fullmatch(text):
        named = f" {taint[1]}" if taint[1] else ""
        return 2, f"{count} {_have(count)} a taint{named} that it does not tolerate"
    if text not in _NODE_TEXTS:
        return 1, f"{count}: {text}"
    rank, one, many = _NODE_TEXTS[text]
    return rank, f"{count} {one if count == 1 else many}"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _short_name(resource: str) -> str:
    return resource.removeprefix(labels.NVIDIA_PREFIX)


def karpenter_reason(message: str, empty: Iterable[str] = ()) -> str:
    """Karpenter's message in words: why each suitable NodePool launched no node for the pod."""
    text = message.removeprefix("Failed to schedule pod, ")
    # The errors of several NodePools, and the parts of one, have the same separator.
    parts = list(dict.fromkeys(filter(None, (_part_reason(part.strip()) for part in text.split("; ")))))
    if not parts:
        parts = [f"NodePool {name} has no available instance type" for name in empty]
    return "Karpenter launches no node: " + ("; ".join(parts) if parts else "no NodePool matches the pod")


def _part_reason(part: str) -> str:
    for pattern, text in _KARPENTER:
        if match := re.search(pattern, part):
            return text.format(*match.groups(), pool=_pool_name(part), asked=_requested(part))
    return part


def _pool_name(part: str) -> str:
    """The NodePool of an error, if the error's requirements name it."""
    match = re.search(rf"{re.escape(labels.NODE_POOL)} In \[([^\]]+)\]", part)
    return f"NodePool {match[1]}" if match else "the pool"


def _requested(part: str) -> str:
    """The requested resources, DaemonSets included, without the number of pods."""
    match = re.search(r"resources=(?:min=)?\{([^}]*)\}", part)
    pairs = re.findall(r'"([^"]+)":"([^"]+)"', match[1]) if match else []
    requests = ", ".join(f"{_short_name(key)} {value}" for key, value in pairs if key != "pods")
    return f" for {requests}" if requests else ""


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
