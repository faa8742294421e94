"""The namespaces that the operator and the workloads live in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.manifest import resource


@dataclass(frozen=True, kw_only=True)
class NamespacesArgs:
    """Whole manifests, Pod Security labels included."""

    manifests: Sequence[Mapping[str, Any]]


class Namespaces(pulumi.ComponentResource):
    """Namespaces with their Pod Security labels."""

    def __init__(self, name: str, args: NamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register one Namespace per manifest."""
        super().__init__("gpuform:platform:Namespaces", name, None, opts)
        for manifest in args.manifests:
            resource(f"{name}-{manifest['metadata']['name']}", manifest, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})
