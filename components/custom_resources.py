"""The resource types of the ``gpuform`` provider (`gpuform.provider.own`).

``kubeconfig`` is a path or the contents, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import pulumi

from infra.model.base.guard_names import GUARD


class _Resource(pulumi.CustomResource):
    """Its properties are the fields of its arguments, in camel case, and its outputs."""

    TYPE: ClassVar[str]
    OUTPUTS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, args: Any, opts: pulumi.ResourceOptions | None = None) -> None:
        properties = {_camel(argument.name): getattr(args, argument.name) for argument in fields(args)}
        super().__init__(self.TYPE, name, {**properties, **dict.fromkeys(self.OUTPUTS)}, opts)


def _camel(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(map(str.title, words))


@dataclass(frozen=True, kw_only=True)
class PoolNodesArgs:
    """The nodes, by a label selector (``k=v,k2=v2``), and what is set on them.

    A taint has ``key``, ``effect`` and, optionally, ``value``; ``startup`` has ``taints`` for nodes without
    the annotation ``proof``, which another program lifts, and the annotation ``reason`` of a node that waits
    for that; ``sharing`` has the ``label`` that configures the device plugin and what a node then ``offers``:
    it does not change while pods use more; ``may_be_empty`` lets nodes join later; ``joining`` has the number
    of ``nodes`` to wait for, and where people ``look`` if they do not come; ``manager`` is the field manager
    of the labels, if another program sets the same ones under that name.
    """

    kubeconfig: pulumi.Input[str]
    context: pulumi.Input[str] | None = None
    selector: pulumi.Input[str]
    labels: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    taints: Sequence[Mapping[str, pulumi.Input[str]]] = ()
    startup: Mapping[str, Any] | None = None
    sharing: Mapping[str, Any] | None = None
    may_be_empty: bool | None = None
    joining: Mapping[str, Any] | None = None
    manager: str | None = None


class PoolNodes(_Resource):
    """Labels and taints on every node that a selector matches, kept for as long as the resource is declared.

    A node that joins later, or that has lost a label, is a change in the next preview. Destroying the
    resource removes what it set and nothing else. If no node matches, an error names the selector, unless the
    nodes may join later.
    """

    TYPE = "gpuform:nodes:PoolNodes"
    OUTPUTS = ("nodes",)
    nodes: pulumi.Output[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class SimulatedNodesArgs:
    """``labels``, ``annotations`` and ``taints`` of every node, and the ``nodes`` by name, each empty."""

    kubeconfig: pulumi.Input[str]
    context: pulumi.Input[str] | None = None
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    nodes: Mapping[str, Mapping[str, Any]]


class SimulatedNodes(_Resource):
    """The Node objects of a pool, which differ by their names only, in one step of the engine.

    An update deletes the nodes that left the pool. Destroying the resource deletes all.
    """

    TYPE = "gpuform:nodes:SimulatedNodes"


@dataclass(frozen=True, kw_only=True)
class MigLayoutArgs:
    """``config`` names a layout in the mig-parted configuration.

    ``offers`` is what each node offers with it (``{"nvidia.com/mig-3g.20gb": 1}``), or that by the node's
    number of GPUs (``{"4": {...}}``); ``layout`` is the content behind a chosen name, so that a changed
    layout of the same name is noticed; ``in_use`` is ``drain`` (the default) or ``refuse``;
    ``max_unavailable`` is a number of nodes or a share (``25%``), 1 by default; ``timeout_seconds`` bounds
    each wait (default 600); ``may_be_empty`` lets nodes join later; ``kept`` says that another program sets
    the layout of nodes that join; ``expected`` is the number of nodes that the pool has afterwards, so that a
    preview counts those that have yet to join; ``config_map`` names the ConfigMap with the layouts, which a
    node's MIG manager must have before its label is set.
    """

    kubeconfig: pulumi.Input[str]
    context: pulumi.Input[str] | None = None
    selector: pulumi.Input[str]
    config: pulumi.Input[str]
    offers: Mapping[str, Any]
    layout: str | None = None
    in_use: str | None = None
    max_unavailable: int | str | None = None
    timeout_seconds: int | None = None
    may_be_empty: bool | None = None
    kept: bool | None = None
    expected: int | None = None
    config_map: str | None = None


class MigLayout(_Resource):
    """One MIG layout on every node that a selector matches, applied to a few nodes at a time.

    Pods that use a GPU there are evicted first, through the Eviction API, so that disruption budgets hold. A
    pod that no controller would recreate, or any pod with ``in_use: refuse``, is an error before anything
    changes. After a failed node, no further node is started. Destroying the resource removes the label; the
    layout stays on the GPU, as with NVIDIA's MIG manager.
    """

    TYPE = "gpuform:nodes:MigLayout"
    OUTPUTS = ("nodes",)
    nodes: pulumi.Output[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class BlueGreenArgs:
    """``deployment`` and ``service`` are manifests without a colour, of one name and namespace.

    ``step`` pods are replaced at a time, the Service switches at ``switch_at`` ready new ones, and
    ``deadline_seconds`` without progress are a failure.
    """

    kubeconfig: pulumi.Input[str]
    context: pulumi.Input[str] | None = None
    deployment: Mapping[str, Any]
    service: Mapping[str, Any]
    step: int
    switch_at: int
    deadline_seconds: int


class BlueGreen(_Resource):
    """A Service and the two Deployments behind it, one of them live.

    A changed template goes to the colour that is not live: it scales up as the live one scales down, the
    Service switches once, and both together never have more pods than replicas. If new pods do not become
    ready, everything is rolled back, and the update fails with their messages. Destroying the resource
    deletes all three.
    """

    TYPE = "gpuform:workloads:BlueGreen"
    OUTPUTS = ("colour",)
    colour: pulumi.Output[str]


@dataclass(frozen=True, kw_only=True)
class ScalingRemovalArgs:
    """``namespace`` and ``name`` are those of a Deployment and of its ScaledObject."""

    kubeconfig: pulumi.Input[str]
    context: pulumi.Input[str] | None = None
    namespace: str
    name: str


class ScalingRemoval(_Resource):
    """Nothing while it is there; destroying it gives the Deployment its declared number of pods again.

    The ScaledObject must depend on it, so that it is destroyed later.
    """

    TYPE = "gpuform:workloads:ScalingRemoval"


@dataclass(frozen=True, kw_only=True)
class HostConfigurationArgs:
    """``inventory`` is JSON as ``ansible-inventory --list`` prints it.

    ``content`` is a hash of it and of the playbook's files, for the diff; ``connection`` may have ``forks``,
    hosts at a time.
    """

    inventory: pulumi.Input[str]
    playbook: pulumi.Input[str] = "site.yml"
    content: pulumi.Input[str]
    connection: Mapping[str, Any] | None = None


class HostConfiguration(_Resource):
    """One playbook on every host of an inventory; fails unless all hosts succeed, but keeps partial results.

    A preview runs the playbook in check mode on reachable hosts. Destroying the resource removes nothing from
    the hosts.
    """

    TYPE = "gpuform:hosts:HostConfiguration"
    OUTPUTS = ("hosts",)
    hosts: pulumi.Output[Mapping[str, Any]]
    """By host: ``{ok, changed, failed, unreachable, message}``."""


@dataclass(frozen=True, kw_only=True)
class LossGuardArgs:
    """``environment`` is the cluster's name; ``fixed`` has by path what only another cluster can have.

    ``lost`` says what goes with the cluster; ``acknowledged`` has the names that the stack file acknowledges.
    With ``pools`` (each with what only a replacement of its nodes changes), ``namespaces``, ``queues``
    (names) and ``volumes`` it guards what is in the cluster instead, which it reads through ``kubeconfig``.
    """

    environment: str
    fixed: Mapping[str, Any]
    lost: Sequence[str]
    acknowledged: Sequence[str]
    kubeconfig: pulumi.Input[str] | None = None
    context: str | None = None
    pools: Mapping[str, Mapping[str, Any]] | None = None
    namespaces: Sequence[str] | None = None
    queues: Sequence[str] | None = None
    volumes: Mapping[str, Mapping[str, Any]] | None = None


class LossGuard(_Resource):
    """Fails, in a preview and in an update, if something would be lost that is not acknowledged by its name.

    It creates nothing and is never shown as a change. If it fails, resources after it are not touched.
    """

    TYPE = GUARD


@dataclass(frozen=True, kw_only=True)
class ReplacementGuardArgs:
    """``fixed`` has by its path below ``at`` what only a replacement of ``what`` changes.

    ``template`` has the same of its template, None if another template is not a replacement; ``allow`` is the
    path of the field with ``allow_replace``; ``acknowledged`` has names that the stack file acknowledges
    instead; ``lost`` says what a replacement deletes; ``cloud`` is the entry of clouds.yaml (empty: the OS_
    variables) that implies ``cluster.region`` if ``fixed`` does not have it.
    """

    what: str
    at: str
    fixed: Mapping[str, Any]
    template: Mapping[str, Any] | None
    allow: str
    allow_replace: bool
    lost: Sequence[str]
    acknowledged: Sequence[str] | None = None
    cloud: str | None = None


class ReplacementGuard(_Resource):
    """Fails, in a preview and in an update, if what it guards would be replaced without permission.

    It creates nothing and is never shown as a change. If it fails, resources after it are not touched.
    """

    TYPE = "gpuform:openstack:ReplacementGuard"
