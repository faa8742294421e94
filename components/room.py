"""Priority classes, quotas of GPUs, and nodes that are kept free."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.room import placeholders, priority_classes, quotas


@dataclass(frozen=True, kw_only=True)
class RoomArgs:
    """Whose namespaces, priorities and pools."""

    environment: Environment


class Room(pulumi.ComponentResource):
    """What decides whose pods find room; before the workloads, and after the pools that are kept free."""

    def __init__(self, name: str, args: RoomArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register them; a class whose value changes is made anew, for the API server changes none."""
        super().__init__("gpuform:platform:Room", name, None, opts)
        env = args.environment
        made: list[pulumi.Resource] = [
            resource(
                f"{name}-priority-{manifest['metadata']['name']}",
                manifest,
                pulumi.ResourceOptions(
                    parent=self,
                    replace_on_changes=["value", "preemptionPolicy"],
                    delete_before_replace=True,
                ),
            )
            for manifest in priority_classes(env)
        ]
        for manifest in quotas(env):
            child = pulumi.ResourceOptions(parent=self)
            resource(f"{name}-quota-{manifest['metadata']['namespace']}", manifest, child)
        for manifest in placeholders(env):
            child = pulumi.ResourceOptions(parent=self, depends_on=list(made))
            resource(f"{name}-{manifest['metadata']['name']}", manifest, child)
        self.register_outputs({})
