"""What the operands want done; the reconciler carries it out and writes nothing that is so already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuform.simulator.objects import Pod


@dataclass(frozen=True, slots=True)
class NodeMeta:
    """Labels and annotations of the node; None takes a key off."""

    by: str
    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Extended resources in the node's status, per node."""

    capacity: dict[str, int]
    allocatable: dict[str, int]


@dataclass(frozen=True, slots=True)
class Annotate:
    """Annotations of a pod; kwok starts it once nothing holds it."""

    pod: Pod
    annotations: dict[str, str]
    says: str


@dataclass(frozen=True, slots=True)
class Crash:
    """One container of the pod is in CrashLoopBackOff, and an Event says why."""

    pod: Pod
    container: str
    message: str


@dataclass(frozen=True, slots=True)
class Recover:
    """The pod's containers run again."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Reject:
    """The kubelet refuses the pod: phase Failed."""

    pod: Pod
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Delete:
    """The pod is deleted."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Create:
    """A pod is created."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Publish:
    """A ResourceSlice is as in the manifest; ``there``: one of that name is there already."""

    manifest: dict[str, Any]
    there: bool


@dataclass(frozen=True, slots=True)
class Withdraw:
    """A ResourceSlice is deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """A Warning on a pod, or on the node where ``pod`` is None."""

    pod: Pod | None
    reason: str
    message: str
    component: str


Action = (
    NodeMeta
    | NodeResources
    | Annotate
    | Crash
    | Recover
    | Reject
    | Delete
    | Create
    | Publish
    | Withdraw
    | Event
)
