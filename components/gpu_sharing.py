"""The ConfigMaps that configure GPU sharing."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs
from components.manifest import resource
from infra.plan.sharing import device_plugin_config_map, mig_parted_config_map


class GpuSharing(pulumi.ComponentResource):
    """ConfigMaps of the device plugin and of the MIG manager (mig-parted), each if a pool needs it.

    The operator does not notice an edited ConfigMap, so each content has its own name. The new one is created
    before the operator's release refers to it, and the old one is deleted at the end of the same update, when
    the nodes use the new one.
    """

    names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
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
