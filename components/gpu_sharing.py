"""The ConfigMaps that say how GPUs are shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.manifest import resource


@dataclass(frozen=True, kw_only=True)
class GpuSharingArgs:
    """``config_maps``: by role, whole manifests with a hash of their content in the name."""

    config_maps: Mapping[str, Mapping[str, Any]]


class GpuSharing(pulumi.ComponentResource):
    """Device-plugin and mig-parted configuration.

    The operator does not see an edit of a ConfigMap, so each content has a name of its own. A new one is made
    before the operator's release moves to it, and the old one goes at the end of the same update, when the
    nodes have moved.
    """

    names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: GpuSharingArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register one ConfigMap per manifest."""
        super().__init__("gpuform:platform:GpuSharing", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        made = [resource(f"{name}-{role}", manifest, child) for role, manifest in args.config_maps.items()]
        self.names = pulumi.Output.all(*[config_map.id for config_map in made])
        self.register_outputs({"names": self.names})
