"""A guard for the Magnum cluster and one for each node group."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.openstack_resources import ReplacementGuard
from infra.model.environment import Environment
from infra.plan.magnum_guards import guards


@dataclass(frozen=True, kw_only=True)
class ReplacementGuardsArgs:
    """Whose cluster and pools."""

    environment: Environment


class ReplacementGuards(pulumi.ComponentResource):
    """All guards, before the first resource of OpenStack's: one that fails leaves everything as it is.

    A pool that is taken out takes its guard along: that is a deletion, which nobody declared by mistake.
    """

    def __init__(
        self, name: str, args: ReplacementGuardsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register one guard for the cluster and one for each pool."""
        super().__init__("gpuform:openstack:ReplacementGuards", name, None, opts)
        for guarded in guards(args.environment):
            ReplacementGuard(
                f"{name}-{guarded.name}",
                what=guarded.what,
                at=guarded.at,
                fixed=guarded.fixed,
                template=guarded.template,
                allow=guarded.allow,
                allow_replace=guarded.allowed,
                lost=guarded.lost,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
