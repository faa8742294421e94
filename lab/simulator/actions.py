"""Actions that operands return for the executor, only for what differs from the current state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lab.simulator.features import Feature
from lab.simulator.objects import Pod


class Action:
    """A change of the cluster."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NodeMeta(Action):
    """Labels and annotations to set on the node; None removes a key."""

    component: str
    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeResources(Action):
    """Extended resources to set in the node's status."""

    capacity: dict[str, int]
    allocatable: dict[str, int]


@dataclass(frozen=True, slots=True)
class Annotate(Action):
    """Annotations to set on a pod; kwok starts a pod once it has the annotations that it waits for."""

    pod: Pod
    annotations: dict[str, str]
    message: str


@dataclass(frozen=True, slots=True)
class Crash(Action):
    """Put one container of the pod into CrashLoopBackOff, with an Event that says why."""

    pod: Pod
    container: str
    message: str


@dataclass(frozen=True, slots=True)
class Recover(Action):
    """The pod's containers run again."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Reject(Action):
    """The kubelet refuses the pod: phase Failed."""

    pod: Pod
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Fail(Action):
    """The pod's containers end with an error, and are not restarted."""

    pod: Pod
    message: str


@dataclass(frozen=True, slots=True)
class Delete(Action):
    """The pod is deleted."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Create(Action):
    """A pod is created."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Publish(Action):
    """Create the ResourceSlice of the manifest; update it if ``exists`` says that it exists."""

    manifest: dict[str, Any]
    exists: bool


@dataclass(frozen=True, slots=True)
class PublishFeature(Action):
    """Create or change a NodeFeature object."""

    feature: Feature


@dataclass(frozen=True, slots=True)
class Withdraw(Action):
    """A ResourceSlice is deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class Event(Action):
    """A Warning on a pod, or on the node where ``pod`` is None."""

    pod: Pod | None
    reason: str
    message: str
    component: str


@dataclass(frozen=True, slots=True)
class Power(Action):
    """The node's kubelet falls silent, or the node has booted and its pods start again."""

    on: bool


@dataclass(frozen=True, slots=True)
class Later(Action):
    """Look at the node again, even if nothing changes."""
