"""Priority classes, quotas of GPUs, and nodes that are kept free."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs
from components.manifest import resource
from infra.plan.room import placeholders, priority_classes, quotas


class Room(pulumi.ComponentResource):
    """Priority classes, GPU quotas and placeholder pods; before the workloads, after the pools.

    A class with a changed value is replaced: the API server does not change it in place.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
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
