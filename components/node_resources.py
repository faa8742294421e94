"""The two resource types of the ``gpuform`` provider: what happens to nodes that are there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi


class PoolNodes(pulumi.CustomResource):
    """Labels and taints on every node that a selector matches, kept for as long as the resource is declared.

    A node that joins later, or from which somebody took a label, is a change in the next preview. Destroying
    the resource takes off what it put on and nothing else. No node matches: an error that names the selector,
    unless the nodes may join later.
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
        """``kubeconfig`` is a path or the contents; ``selector`` is a label selector (``k=v,k2=v2``);
        a taint has ``key``, ``effect`` and, where wanted, ``value``; ``startup`` has ``taints`` for nodes
        without the annotation ``proof``, which somebody else lifts, and the annotation ``reason`` of one that
        waits for that; ``sharing`` has the ``label`` by which the device plugin is configured and what a node
        then ``offers``: it does not change while pods use more; ``may_be_empty`` lets nodes join later;
        ``joining`` says how many ``nodes`` are waited for, and where people ``look`` if they do not come;
        ``manager`` is the field manager of the labels, where somebody else sets the same under that name.
        """
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
    """One MIG layout on every node that a selector matches, put on a few nodes at a time.

    Pods that use a GPU there are evicted first, through the Eviction API, so that disruption budgets hold; a
    pod that no controller would bring back, or any where nothing may be evicted, is an error before anything
    is changed. After a node that fails no further one is begun. Destroying the resource
    takes the label off; the layout stays on the GPU, for that is what NVIDIA's MIG manager does as well.
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
        """``config`` names a layout in the mig-parted configuration; ``offers`` is what each node offers with
        it (``{"nvidia.com/mig-3g.20gb": 1}``); ``layout`` says what a chosen name stands for, so
        that another layout under it is noticed; ``in_use`` is ``drain`` (the default) or ``refuse``;
        ``max_unavailable`` is a number of nodes or a share (``25%``), 1 by default; ``timeout_seconds``
        bounds each wait (default 600); ``may_be_empty`` lets nodes join later; ``kept`` says that somebody
        else tells those their layout.
        """
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
