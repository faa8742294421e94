"""A cluster's nodes and pods, as every report has them."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.kubernetes.pods import condition, sum_requests
from gpuform.usage.cluster_objects import Claims
from infra.model.base.labels import (
    ADAPTERS,
    APP_NAME,
    CAPACITY_TYPE,
    ENVIRONMENT,
    GPU_NOT_READY,
    GPU_UNHEALTHY,
    GPU_WAITS_FOR,
    HUGE_PAGES,
    INSTANCE_TYPE,
    NVIDIA_PREFIX,
    POOL,
    SIM_DEVICES,
    SIM_GPU,
    SIM_GPU_COUNT,
    SIM_MIG_LAYOUT,
    ZONE,
)
from infra.model.base.quantities import quantity, whole_number
from infra.plan.magnum import GROUP_LABELS

CPU = "cpu"
MEMORY_GIB = "memory_gib"
"""Keys for cores and GiB, as in an elastic pool's limits."""
_GIB = 2**30
_UNREPORTED = "the readiness gate has not reported yet"
_SLICE = re.compile(r"[^@]+@[0-9]+")
_DEVICES = uuid.UUID("5b0f3a52-2f1e-4b7c-9a53-0c1d6c1f7f10")

Json = Mapping[str, Any]
Amounts = Mapping[str, float]


@dataclass(frozen=True)
class Device:
    """A GPU of a simulated node, or a MIG instance of one; ``start`` is its first memory slice.

    ``ident`` is the id under which the simulated device manager allocates it: by the node's uid.
    """

    gpu: int
    ident: str
    profile: str = ""
    start: int = 0


@dataclass(frozen=True)
class Node:
    """One node; ``offers`` is in cores, GiB and numbers of ``nvidia.com/...``, only those above zero.

    ``allocatable`` and ``used`` count only GPU resources, also those of which there are none; devices by
    claim count as ``gpu.nvidia.com``. ``waits_for`` is why a startup taint keeps workloads off the node, in
    the readiness gate's words; empty without the taint. ``layout``: the MIG slices of each GPU with their
    start, as the simulator stores it: ``{"0": ["3g.20gb@4", ...]}``. ``gpus`` counts the simulated ones.
    Annotations that the simulator did not write so are ignored.
    """

    name: str
    uid: str
    pool: str
    machine: str
    zone: str
    capacity: str
    ready: bool
    offers: Amounts
    gpus: int = 0
    layout: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """The node's labels."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    """What its pods request; set by `with_usage`."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """What its pool declares for it; set by `summarise_status`, empty if that is unknown."""
    waits_for: str = ""
    closed: str = ""
    """Why no new GPU pod is scheduled there: it is cordoned, or has one of our taints."""

    @property
    def deviations(self) -> dict[str, str]:
        """``3 of 4`` or ``7 (declared 0)`` by resource, where it offers another number than declared."""
        wanted = {**dict.fromkeys(self.allocatable, 0), **self.planned} if self.planned else {}
        return {
            key: f"{has} of {count}" if has < count else f"{has} (declared {count})"
            for key, count in wanted.items()
            if (has := self.allocatable.get(key, 0)) != count
        }

    @property
    def devices(self) -> Iterator[Device]:
        """The devices of a simulated node, by GPU."""
        for index in range(self.gpus):
            slices = self.layout.get(str(index), ())
            if not slices:
                yield Device(index, gpu_id(self.uid, index))
            for text in slices:
                profile, _, start = text.partition("@")
                yield Device(index, mig_id(self.uid, index, profile, int(start)), profile, int(start))


def gpu_id(node: str, index: int) -> str:
    """Id of a whole GPU of the simulated node with this uid."""
    return f"GPU-{uuid.uuid5(_DEVICES, f'{node}/{index}')}"


def mig_id(node: str, index: int, profile: str, start: int) -> str:
    return f"MIG-{uuid.uuid5(_DEVICES, f'{node}/{index}/{profile}/{start}')}"


@dataclass(frozen=True)
class Pod:
    """One pod; ``workload`` is empty for pods of the platform, ``devices`` are its allocated devices.

    ``trouble`` is the reason in its status, ``reason`` also a waiting container's or the scheduler's.
    """

    namespace: str
    name: str
    workload: str
    node: str
    phase: str
    requests: Amounts
    devices: tuple[str, ...] = ()
    trouble: str = ""
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it has ended and no longer uses resources."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_placed(self) -> bool:
        """Whether it runs or has succeeded."""
        return bool(self.node) and self.phase in ("Running", "Succeeded")

    @property
    def gpu_requests(self) -> dict[str, int]:
        """What it requests of GPUs: resources, and devices by class."""
        return {
            key: round(count)
            for key, count in sorted(self.requests.items())
            if key not in (CPU, MEMORY_GIB, HUGE_PAGES) and not key.startswith(ADAPTERS)
        }


def parse_amounts(resources: Mapping[str, str]) -> dict[str, float]:
    """Cores, GiB (huge pages too), GPU resources and adapters above zero of a Kubernetes resource list."""
    amounts = {}
    for key, text in resources.items():
        if key == "cpu":
            amounts[CPU] = quantity(text)
        elif key == "memory":
            amounts[MEMORY_GIB] = quantity(text) / _GIB
        elif key == HUGE_PAGES:
            amounts[key] = quantity(text) / _GIB
        elif key.startswith((NVIDIA_PREFIX, *ADAPTERS)):
            amounts[key] = quantity(text)
    return {key: amount for key, amount in sorted(amounts.items()) if amount}


def parse_node(raw: Json, claims: Claims = Claims()) -> Node:  # noqa: B008  (frozen)
    """The record of a Node; DRA devices count as offered, by device class."""
    meta, status = raw["metadata"], raw.get("status", {})
    node_labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    has, claimed = status.get("allocatable", {}), claims.devices.get(meta["name"], {})
    gpus = {key: whole_number(has[key]) for key in sorted(has) if key.startswith(NVIDIA_PREFIX)}
    spec = raw.get("spec") or {}
    taints = {taint["key"]: taint.get("value", "") for taint in spec.get("taints") or ()}
    count = notes.get(SIM_GPU_COUNT, "")
    return Node(
        name=meta["name"],
        uid=meta.get("uid", ""),
        pool=pool_of(node_labels),
        machine=node_labels.get(INSTANCE_TYPE, ""),
        zone=node_labels.get(ZONE, ""),
        capacity=node_labels.get(CAPACITY_TYPE, ""),
        ready=conditions.get("Ready") == "True",
        offers={**parse_amounts(has), **claimed},
        gpus=int(count) if notes.get(SIM_GPU) and count.isdecimal() else 0,
        layout=_parse_layout(notes.get(SIM_MIG_LAYOUT, "{}")),
        labels=node_labels,
        allocatable={**gpus, **claimed},
        waits_for=(notes.get(GPU_WAITS_FOR) or _UNREPORTED) if GPU_NOT_READY in taints else "",
        closed=", ".join(["cordoned"] * bool(spec.get("unschedulable")) + list(_closing_taints(taints))),
    )


def _parse_layout(annotation: str) -> dict[str, tuple[str, ...]]:
    """Slices by GPU; none if a user has changed the annotation to what the simulator does not write."""
    try:
        layout = {gpu: tuple(slices) for gpu, slices in json.loads(annotation).items()}
        valid = all(_SLICE.fullmatch(text) for slices in layout.values() for text in slices)
    except (ValueError, TypeError, AttributeError):
        return {}
    return layout if valid else {}


def _closing_taints(taints: Mapping[str, str]) -> Iterator[str]:
    for key, value in taints.items():
        if key == GPU_UNHEALTHY:
            yield f"out of use: {value}".removesuffix(": ")
        elif key == GPU_NOT_READY:
            yield "its GPUs are not proven yet"


def with_usage(nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[Node, ...]:
    """The nodes, sorted by name, each with what its pods that have not ended request."""
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod.node and not pod.has_ended:
            used.setdefault(pod.node, Counter()).update(pod.gpu_requests)
    updated = (replace(node, used=dict(sorted(used.get(node.name, {}).items()))) for node in nodes)
    return tuple(sorted(updated, key=lambda node: node.name))


def pool_of(tags: Mapping[str, str]) -> str:
    """The node's pool by its labels, or its Magnum node group: the default workers belong to no pool."""
    return tags.get(POOL) or next((tags[key] for key in GROUP_LABELS.values() if key in tags), "")


def parse_pod(raw: Json, environment: str, claims: Claims = Claims()) -> Pod:  # noqa: B008  (frozen)
    """The record of a Pod; a workload's pod is recognised by its environment label."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    pod_labels = meta.get("labels", {})
    is_own = pod_labels.get(ENVIRONMENT) == environment and APP_NAME in pod_labels
    requests = sum_requests(spec, lambda container: parse_amounts(requests_of(container)))
    requests.update(claims.requested_by(raw))
    device_ids = (meta.get("annotations") or {}).get(SIM_DEVICES, "")
    trouble = _reason_and_message(status)
    return Pod(
        namespace=meta["namespace"],
        name=meta["name"],
        workload=pod_labels[APP_NAME] if is_own else "",
        node=spec.get("nodeName", ""),
        phase=status.get("phase", "Pending"),
        requests=dict(requests),
        devices=(*(device_ids.split(",") if device_ids else ()), *claims.allocated_to(raw)),
        trouble=trouble,
        reason=trouble if status.get("reason") else _pod_reason(status),
    )


def _pod_reason(status: Json) -> str:
    """Why a pod without a reason of its own is not in order: a waiting container's, or the scheduler's."""
    for container in status.get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason"):
            return str(waiting["reason"])
    scheduled = condition({"status": status}, "PodScheduled")
    return _reason_and_message(scheduled) if scheduled.get("status") == "False" else ""


def _reason_and_message(item: Json) -> str:
    return ": ".join(filter(None, (item.get("reason"), item.get("message"))))


def requests_of(container: Json) -> dict[str, str]:
    """The container's requests; a limit without a request counts as request."""
    declared = container.get("resources", {})
    return {**declared.get("limits", {}), **declared.get("requests", {})}
