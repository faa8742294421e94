"""The environment's workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.manifest import resource


@dataclass(frozen=True, kw_only=True)
class WorkloadsArgs:
    """Whole manifests, each with a name of its own within its namespace."""

    manifests: Sequence[Mapping[str, Any]]


class Workloads(pulumi.ComponentResource):
    """Pods, Deployments and Jobs; the update waits until each runs, and says why one does not."""

    def __init__(self, name: str, args: WorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register one resource per manifest."""
        super().__init__("gpuform:platform:Workloads", name, None, opts)
        for manifest in args.manifests:
            metadata = manifest["metadata"]
            resource(
                f"{name}-{metadata['namespace']}-{metadata['name']}",
                manifest,
                pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
