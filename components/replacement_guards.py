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
    """The environment; ``template`` is the id of the template, if it is not our own.

    Not its name: that can be given to another template, to which the cluster would then be moved.
    """

    environment: Environment
    template: pulumi.Input[str] | None


class ReplacementGuards(pulumi.ComponentResource):
    """All guards, before the first OpenStack resource: one that fails leaves everything as it is.

    Removing a pool also removes its guard: that is a loss, which LossGuard judges.
    """

    def __init__(
        self, name: str, args: ReplacementGuardsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
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
                acknowledged=args.environment.acknowledge_loss,
                cloud=guarded.cloud,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


def _template(guarded: Guarded, found: pulumi.Input[str] | None) -> Mapping[str, Any] | None:
    """Guarded fields of the template: the content of our own, or the id of the cloud's."""
    if guarded.template is None or found is None:
        return guarded.template
    return dict.fromkeys(guarded.template, found)
