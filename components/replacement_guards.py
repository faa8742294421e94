"""A guard for the Magnum cluster and one for each node group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.openstack_resources import ReplacementGuard
from infra.model.environment import Environment
from infra.plan.magnum_guards import Guarded, guards


@dataclass(frozen=True, kw_only=True)
class ReplacementGuardsArgs:
    """Whose cluster and pools; ``template`` is the id of the template, where it is not our own.

    A name can be given to another template, which is then what the cluster would be moved to.
    """

    environment: Environment
    template: pulumi.Input[str] | None


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
                template=_template(guarded, args.template),
                allow=guarded.allow,
                allow_replace=guarded.allowed,
                lost=guarded.lost,
                cloud=guarded.cloud,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


def _template(guarded: Guarded, found: pulumi.Input[str] | None) -> Mapping[str, Any] | None:
    """What is guarded of the template: our own's content, or by its id the one that was found."""
    if guarded.template is None or found is None:
        return guarded.template
    return dict.fromkeys(guarded.template, found)
