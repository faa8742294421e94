"""A rehearsal's records of nodes, pods and events in its cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.kubernetes.pods import requested
from gpuform.usage.claims import Claims
from infra.model import labels
from infra.model.quantity import quantity
from infra.plan.magnum import GROUP_LABELS

CPU = "cpu"
MEMORY_GIB = "memory_gib"
"""Keys for cores and GiB, as in an elastic pool's limits."""
_GIB = 2**30

Json = Mapping[str, Any]
Amounts = Mapping[str, float]


@dataclass(frozen=True)
class Node:
    """One node; ``offers`` is in cores, GiB and numbers of ``nvidia.com/...``, only those above zero.

    ``held``: a startup taint keeps workloads off the node. ``layout``: the MIG slices of each GPU with their
    start, as the simulator stores it: ``{"0": ["3g.20gb@4", ...]}``.
    """

    name: str
    uid: str
    pool: str
    machine: str
    zone: str
    capacity: str
    ready: bool
    held: bool
    offers: Amounts
    gpus: int
    layout: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Pod:
    """One pod; ``workload`` is empty for pods of the platform, ``devices`` are its allocated devices."""

    namespace: str
    name: str
    workload: str
    node: str
    phase: str
    asks: Amounts
    devices: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def over(self) -> bool:
        """Whether it has ended and no longer uses resources."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def placed(self) -> bool:
        """Whether it runs or has succeeded."""
        return bool(self.node) and self.phase in ("Running", "Succeeded")


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


def amounts(resources: Mapping[str, str]) -> dict[str, float]:
    """Cores, GiB (huge pages too), GPU resources and EFAs above zero of a Kubernetes resource list."""
    found = {}
    for key, text in resources.items():
        if key == "cpu":
            found[CPU] = quantity(text)
        elif key == "memory":
            found[MEMORY_GIB] = quantity(text) / _GIB
        elif key == labels.HUGE_PAGES:
            found[key] = quantity(text) / _GIB
        elif key.startswith((labels.NVIDIA_PREFIX, labels.EFA)):
            found[key] = quantity(text)
    return {key: amount for key, amount in sorted(found.items()) if amount}


def node(raw: Json, claims: Claims = Claims()) -> Node:  # noqa: B008  (frozen)
    """The record of a Node; DRA devices count as offered, by device class."""
    meta, status = raw["metadata"], raw.get("status", {})
    tags, notes = meta.get("labels", {}), meta.get("annotations", {})
    taints = {taint["key"] for taint in raw.get("spec", {}).get("taints", [])}
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    layout = json.loads(notes.get(labels.SIM_MIG_LAYOUT, "{}"))
    return Node(
        name=meta["name"],
        uid=meta["uid"],
        pool=pool_of(tags),
        machine=tags.get(labels.INSTANCE_TYPE, ""),
        zone=tags.get(labels.ZONE, ""),
        capacity=tags.get(labels.CAPACITY_TYPE, ""),
        ready=conditions.get("Ready") == "True",
        held=labels.GPU_NOT_READY in taints,
        offers={**amounts(status.get("allocatable", {})), **claims.devices.get(meta["name"], {})},
        gpus=int(notes.get(labels.SIM_GPU_COUNT, "0")) if notes.get(labels.SIM_GPU) else 0,
        layout={gpu: tuple(slices) for gpu, slices in layout.items()},
    )


def pool_of(tags: Mapping[str, str]) -> str:
    """The node's pool by its labels, or its Magnum node group: the default workers belong to no pool."""
    return tags.get(labels.POOL) or next((tags[key] for key in GROUP_LABELS.values() if key in tags), "")


def pod(raw: Json, environment: str, claims: Claims = Claims()) -> Pod:  # noqa: B008  (frozen)
    """The record of a Pod; a workload's pod is recognised by its environment label."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    tags = meta.get("labels", {})
    ours = tags.get(labels.ENVIRONMENT) == environment and labels.APP_NAME in tags
    asks = requested(spec, lambda one: amounts(resources(one)))
    asks.update(claims.of_pod(raw))
    given = meta.get("annotations", {}).get(labels.SIM_DEVICES, "")
    return Pod(
        namespace=meta["namespace"],
        name=meta["name"],
        workload=tags[labels.APP_NAME] if ours else "",
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        asks=dict(asks),
        devices=(*(given.split(",") if given else ()), *claims.given_to(raw)),
        trouble=": ".join(filter(None, (status.get("reason"), status.get("message")))),
    )


def resources(container: Json) -> dict[str, str]:
    """The container's requests; a limit without a request counts as request."""
    said = container.get("resources", {})
    return {**said.get("limits", {}), **said.get("requests", {})}


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
