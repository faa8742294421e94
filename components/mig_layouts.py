"""MIG layouts, applied to the nodes in turn."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.node_resources import MigLayout
from infra.model import labels, reset
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import mig_parted
from infra.plan.pool_keeper import kept
from infra.plan.sharing import mig_config_name, offered


@dataclass(frozen=True, kw_only=True)
class MigLayoutsArgs:
    """The environment with the pools, and the cluster that has their nodes."""

    environment: Environment
    kubeconfig: pulumi.Input[str]


class MigLayouts(pulumi.ComponentResource):
    """One MigLayout per MIG-capable pool: drain within budgets, relabel, wait until the slices are offered.

    Pools without slices are included. Nodes that join with their layout are not: Karpenter's, which are
    created with its label, and those of an image that partitions its GPUs at boot. It must come after the
    operator's release: the MIG manager does the work on the node.
    """

    def __init__(self, name: str, args: MigLayoutsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:MigLayouts", name, None, opts)
        for pool in args.environment.pools:
            config, bounds = mig_config_name(pool), pool.relayout
            if (
                config
                and pool.laid_out_live(args.environment.cluster.kind)
                and args.environment.has_mig_manager
            ):
                MigLayout(
                    f"{name}-{pool.name}",
                    kubeconfig=args.kubeconfig,
                    context=args.environment.context,
                    selector=f"{labels.POOL}={pool.name}",
                    config=config,
                    layout=mig_parted.content(pool),
                    # GPUs allocated by claim are not a resource, whatever their layout.
                    offers=offered(args.environment, pool) or {labels.NVIDIA_GPU: 0},
                    may_be_empty=pool.hosts is not None,
                    kept=pool in kept(args.environment),
                    in_use=bounds.in_use if bounds else None,
                    max_unavailable=bounds.max_unavailable if bounds else None,
                    timeout_seconds=_timeout_s(args.environment, pool),
                    opts=pulumi.ResourceOptions(parent=self),
                )
        self.register_outputs({})


def _timeout_s(env: Environment, pool: Pool) -> int | None:
    """The declared limit of a node's change; without one that of a reboot, or None for the resource's own."""
    declared = pool.relayout.timeout_seconds if pool.relayout else None
    return declared or (reset.TIMEOUT_S if reset.of(env.cluster.kind, pool) == "reboot" else None)
