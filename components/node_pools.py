"""The nodes of every pool, with the labels and taints that nobody should have to set by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.manifest import resource
from components.node_resources import PoolNodes


@dataclass(frozen=True, kw_only=True)
class FoundPool:
    """A pool on a cluster that is there: which nodes it is (a label selector) and what they get."""

    selector: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class NodePoolsArgs:
    """``simulated``: Node manifests by pool, for the embedded cluster; ``found``: pools of an existing one."""

    kubeconfig: pulumi.Input[str]
    context: str | None = None
    simulated: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    found: Mapping[str, FoundPool] = field(default_factory=dict)


class NodePools(pulumi.ComponentResource):
    """Simulated nodes are made and deleted; nodes that were found only get, and at the end lose, our labels."""

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register one Node per simulated node and one PoolNodes per found pool."""
        super().__init__("gpuform:platform:NodePools", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for nodes in args.simulated.values():
            for node in nodes:
                resource(f"{name}-{node['metadata']['name']}", node, child)
        for pool, found in args.found.items():
            PoolNodes(
                f"{name}-{pool}",
                kubeconfig=args.kubeconfig,
                context=args.context,
                selector=found.selector,
                labels=dict(found.labels),
                taints=[dict(taint) for taint in found.taints],
                opts=child,
            )
        self.register_outputs({})
