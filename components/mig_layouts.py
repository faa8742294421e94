"""MIG layouts, put on the nodes one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.node_resources import MigLayout


@dataclass(frozen=True, kw_only=True)
class PoolLayout:
    """What one pool's nodes shall hold: a name from the mig-parted configuration, and what each then offers."""

    selector: str
    config: str
    offers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class MigLayoutsArgs:
    """``layouts`` by pool."""

    kubeconfig: pulumi.Input[str]
    context: str | None = None
    layouts: Mapping[str, PoolLayout]


class MigLayouts(pulumi.ComponentResource):
    """One workflow per MIG pool: drain within disruption budgets, relabel, wait until the node offers the slices.

    It belongs after the operator's release, whose MIG manager does the work on the node.
    """

    def __init__(self, name: str, args: MigLayoutsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register one MigLayout per pool."""
        super().__init__("gpuform:platform:MigLayouts", name, None, opts)
        for pool, layout in args.layouts.items():
            MigLayout(
                f"{name}-{pool}",
                kubeconfig=args.kubeconfig,
                context=args.context,
                selector=layout.selector,
                config=layout.config,
                offers=dict(layout.offers),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
