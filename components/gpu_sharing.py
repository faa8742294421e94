"""The ConfigMaps that say how GPUs are shared."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.sharing import device_plugin_config_map, mig_parted_config_map


@dataclass(frozen=True, kw_only=True)
class GpuSharingArgs:
    """Whose pools are shared."""

    environment: Environment


class GpuSharing(pulumi.ComponentResource):
    """Device-plugin and mig-parted configuration.

    The operator does not see an edit of a ConfigMap, so each content has a name of its own. A new one is made
    before the operator's release moves to it, and the old one goes at the end of the same update, when the
    nodes have moved.
    """

    names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: GpuSharingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the device plugin's ConfigMap and the MIG manager's, each where a pool needs it."""
        super().__init__("gpuform:platform:GpuSharing", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        config_maps = {
            "device-plugin": device_plugin_config_map(args.environment),
            "mig-parted": mig_parted_config_map(args.environment),
        }
        made = [
            resource(f"{name}-{role}", manifest, child) for role, manifest in config_maps.items() if manifest
        ]
        self.names = pulumi.Output.all(*[config_map.id for config_map in made])
        self.register_outputs({"names": self.names})
