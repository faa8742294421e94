"""The two resource types of the ``gpuform`` provider for existing nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi


class PoolNodes(pulumi.CustomResource):
    """Labels and taints on every node that a selector matches, kept for as long as the resource is declared.

    A node that joins later, or that has lost a label, is a change in the next preview. Destroying the
    resource removes what it set and nothing else. If no node matches, an error names the selector, unless the
    nodes may join later.

    ``kubeconfig`` is a path or the contents; ``selector`` is a label selector (``k=v,k2=v2``); a taint has
    ``key``, ``effect`` and, optionally, ``value``; ``startup`` has ``taints`` for nodes without the
    annotation ``proof``, which another program lifts, and the annotation ``reason`` of a node that waits for
    that; ``sharing`` has the ``label`` that configures the device plugin and what a node then ``offers``: it
    does not change while pods use more; ``may_be_empty`` lets nodes join later; ``joining`` has the number of
    ``nodes`` to wait for, and where people ``look`` if they do not come; ``manager`` is the field manager of
    the labels, if another program sets the same ones under that name.
    """

    nodes: pulumi.Output[Sequence[str]]

    def __init__(
        self,
        resource_name: str,
        *,
        kubeconfig: pulumi.Input[str],
        selector: pulumi.Input[str],
        labels: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
        taints: pulumi.Input[Sequence[pulumi.Input[Mapping[str, pulumi.Input[str]]]]] | None = None,
        startup: Mapping[str, Any] | None = None,
        sharing: Mapping[str, Any] | None = None,
        context: pulumi.Input[str] | None = None,
        may_be_empty: bool = False,
        joining: Mapping[str, Any] | None = None,
        manager: str | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "kubeconfig": kubeconfig,
            "context": context,
            "mayBeEmpty": may_be_empty or None,
            "selector": selector,
            "labels": labels or {},
            "taints": taints or [],
            "startup": startup,
            "sharing": sharing,
            "joining": joining,
            "manager": manager,
            "nodes": None,
        }
        super().__init__("gpuform:nodes:PoolNodes", resource_name, props, opts)


class MigLayout(pulumi.CustomResource):
    """One MIG layout on every node that a selector matches, applied to a few nodes at a time.

    Pods that use a GPU there are evicted first, through the Eviction API, so that disruption budgets hold. A
    pod that no controller would recreate, or any pod with ``in_use: refuse``, is an error before anything
    changes. After a failed node, no further node is started. Destroying the resource removes the label; the
    layout stays on the GPU, as with NVIDIA's MIG manager.

    ``config`` names a layout in the mig-parted configuration; ``offers`` is what each node offers with it
    (``{"nvidia.com/mig-3g.20gb": 1}``); ``layout`` is the content behind a chosen name, so that a changed
    layout of the same name is noticed; ``in_use`` is ``drain`` (the default) or ``refuse``;
    ``max_unavailable`` is a number of nodes or a share (``25%``), 1 by default; ``timeout_seconds`` bounds
    each wait (default 600); ``may_be_empty`` lets nodes join later; ``kept`` says that another program sets
    the layout of nodes that join.
    """

    nodes: pulumi.Output[Sequence[str]]

    def __init__(
        self,
        resource_name: str,
        *,
        kubeconfig: pulumi.Input[str],
        selector: pulumi.Input[str],
        config: pulumi.Input[str],
        offers: pulumi.Input[Mapping[str, pulumi.Input[int]]],
        layout: str | None = None,
        in_use: str | None = None,
        max_unavailable: int | str | None = None,
        timeout_seconds: pulumi.Input[int] | None = None,
        context: pulumi.Input[str] | None = None,
        may_be_empty: bool = False,
        kept: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        props = {
            "kubeconfig": kubeconfig,
            "context": context,
            "mayBeEmpty": may_be_empty or None,
            "selector": selector,
            "config": config,
            "layout": layout,
            "offers": offers,
            "inUse": in_use,
            "maxUnavailable": max_unavailable,
            "timeoutSeconds": timeout_seconds,
            "kept": kept or None,
            "nodes": None,
        }
        super().__init__("gpuform:nodes:MigLayout", resource_name, props, opts)
