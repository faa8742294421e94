"""The few fields of nodes and pods that the simulator keeps.

A thousand nodes run ten thousand operand pods; whole objects would not fit into the simulator's memory limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from lab.simulator import keys, real_operator

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """Fields of a pod's template; pods of one DaemonSet share one object."""

    containers: tuple[tuple[str, str], ...]
    init: tuple[tuple[str, str], ...]
    env: tuple[tuple[str, str], ...]
    config_map: str
    after: tuple[str, ...]
    tolerations: tuple[tuple[tuple[str, Any], ...], ...]
    needs_mig_state: bool = False
    """Whether node affinity names the MIG state: in another state the pod is removed."""

    def value(self, name: str) -> str:
        return dict(self.env).get(name, "")


@dataclass(slots=True)
class Pod:
    """A pod on a node, either an operand or one that requests GPUs."""

    namespace: str
    name: str
    uid: str
    version: int
    node: str
    operand: str
    template: Template
    owner: tuple[str, str, str]
    requests: tuple[tuple[str, bool, tuple[tuple[str, int], ...]], ...]
    created: str
    phase: str
    ready: bool
    deleting: bool
    crash: str
    start: str
    loaded: str
    devices: str
    unhealthy: str = ""
    limits: str = ""
    memory: str = ""
    held: str = ""
    load: str = ""
    runtime_class: str = ""
    trial: bool = False

    @property
    def running(self) -> bool:
        return self.phase == "Running" and self.ready and not self.deleting and not self.crash

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(slots=True)
class Node:
    """A node; capacity and allocatable hold only GPUs and Elastic Fabric Adapters."""

    name: str
    uid: str
    version: int
    labels: dict[str, str]
    annotations: dict[str, str]
    capacity: dict[str, int]
    allocatable: dict[str, int]


_templates: dict[Template, Template] = {}


def parse_node(raw: Json) -> Node:
    meta, status = raw["metadata"], raw.get("status") or {}
    return Node(
        name=intern(meta["name"]),
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        labels={intern(key): intern(value) for key, value in (meta.get("labels") or {}).items()},
        annotations={
            intern(key): intern(value)
            for key, value in (meta.get("annotations") or {}).items()
            if key.startswith(keys.SIMULATOR)
        },
        capacity=_extended_resources(status.get("capacity")),
        allocatable=_extended_resources(status.get("allocatable")),
    )


def operand_of(metadata: Json) -> str:
    """The operand that a pod stands for, of our charts or of NVIDIA's operator; empty for another pod."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if labels.get(keys.PART_OF) in keys.CHARTS:
        return str(labels.get(keys.OPERAND, ""))
    return real_operator.operand(labels, annotations)


def parse_pod(raw: Json) -> Pod | None:
    """None if the pod is neither an operand nor requests GPUs."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    operand = operand_of(meta)
    requests = tuple(_requests(spec))
    if not operand and not requests:
        return None
    owner: Json = next((ref for ref in meta.get("ownerReferences") or () if ref.get("controller")), {})
    return Pod(
        namespace=intern(meta["namespace"]),
        name=meta["name"],
        uid=meta["uid"],
        version=int(meta["resourceVersion"]),
        node=intern(spec.get("nodeName") or ""),
        operand=intern(operand),
        template=_template(spec, annotations, bool(operand)),
        owner=(intern(owner.get("kind", "")), intern(owner.get("name", "")), intern(owner.get("uid", ""))),
        requests=requests,
        created=meta["creationTimestamp"],
        phase=intern(status.get("phase", "Pending")),
        ready=_is_ready(status),
        deleting="deletionTimestamp" in meta,
        crash=_crash(status),
        start=intern(annotations.get(keys.START, "")),
        loaded=intern(annotations.get(keys.LOADED, "")),
        devices=annotations.get(keys.DEVICES, ""),
        unhealthy=annotations.get(keys.UNHEALTHY, ""),
        limits=intern(annotations.get(keys.MPS_LIMITS, "")),
        memory=intern(annotations.get(keys.MEMORY, "")),
        held=annotations.get(keys.MEMORY_HELD, ""),
        load=intern(annotations.get(keys.LOAD, "")),
        runtime_class=intern(spec.get("runtimeClassName") or ""),
        trial=labels.get("app") == keys.TRIAL,
    )


def _is_ready(status: Json) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def _extended_resources(quantities: Mapping[str, str] | None) -> dict[str, int]:
    prefixes = (keys.VENDOR, *keys.ADAPTERS)
    ours = ((name, count) for name, count in (quantities or {}).items() if name.startswith(prefixes))
    return {intern(name): _count(quantity) for name, quantity in ours}


def _count(quantity: str) -> int:
    """The API server writes whole thousands as 1k, and whole millions as 1M."""
    scale = {"k": 1000, "M": 1000_000}.get(quantity[-1:], 1)
    return int(quantity if scale == 1 else quantity[:-1]) * scale


def _requests(spec: Json) -> Iterator[tuple[str, bool, tuple[tuple[str, int], ...]]]:
    for kind, init in (("containers", False), ("initContainers", True)):
        for c in spec.get(kind) or ():
            resources = c.get("resources") or {}
            asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            amounts = _extended_resources(asked)
            # The scheduler alone counts adapters; the simulated device manager allocates GPUs.
            wanted = tuple(
                item for item in sorted(amounts.items()) if item[1] and not item[0].startswith(keys.ADAPTERS)
            )
            if wanted:
                yield intern(c["name"]), init, wanted


def _crash(status: Json) -> str:
    """Message of the first container that crash-loops, "" without one."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for c in status.get(kind) or ():
            if ((c.get("state") or {}).get("waiting") or {}).get("reason") == "CrashLoopBackOff":
                last = (c.get("lastState") or {}).get("terminated") or {}
                return intern(last.get("message") or "unknown")
    return ""


def _template(spec: Json, annotations: Mapping[str, str], operand: bool) -> Template:
    """All fields for an operand; only the containers for another pod, as its process may fail."""

    def images(field: str) -> tuple[tuple[str, str], ...]:
        return tuple((c["name"], c["image"]) for c in spec.get(field) or ())

    if not operand:
        template = Template(images("containers"), images("initContainers"), (), "", (), ())
        return _templates.setdefault(template, template)
    env = {item["name"]: item.get("value", "") for c in spec["containers"] for item in c.get("env") or ()}
    init = images("initContainers")
    after = annotations[keys.AFTER].split(",") if keys.AFTER in annotations else real_operator.waits_for(init)
    template = Template(
        containers=images("containers"),
        init=init,
        env=tuple(sorted(env.items())),
        config_map=real_operator.config_map(spec),
        after=tuple(after),
        tolerations=tuple(tuple(sorted(t.items())) for t in spec.get("tolerations") or ()),
        needs_mig_state=keys.MIG_STATE in json.dumps((spec.get("affinity") or {}).get("nodeAffinity")),
    )
    return _templates.setdefault(template, template)
