"""InfiniBand and RoCE adapters of a pool's nodes, which pods get as one extended resource.

The shared device plugin offers ``count`` of the resource on a node, and each container that requests it
gets all adapters that the selectors match [Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/resources/
server.go, Allocate].
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import Count, Model, Strict, each_once, matching, option

MELLANOX = "15b3"
"""PCI vendor of every adapter that the operator's plugin is started for."""
SHARES = 63
"""Pods that may share a node's adapters, as in the operator's own samples (config/samples)."""

Resource = Annotated[
    Strict,
    # The plugin's names (pkg/resources/resources_manager.go, validResourceName), with its default prefix.
    matching(
        r"rdma/[A-Za-z0-9]([A-Za-z0-9_]{0,61}[A-Za-z0-9])?",
        "a resource of the RDMA device plugin",
        "write it as rdma/NAME, with letters, digits and _; give an SR-IOV plugin resourcePrefix: rdma",
    ),
]
Interface = Annotated[
    Strict, matching(r"[A-Za-z0-9_.-]{1,15}", "the name of a network interface", "write it as `ip link` does")
]


class Rdma(Model):
    """InfiniBand or RoCE adapters of the pool's nodes (own hosts, existing cluster).

    Without ``link_type`` and ``interfaces`` it has all of NVIDIA's, those of storage and management as well.
    """

    mode: Literal["shared", "existing"] = option(
        "Who offers the resource: NVIDIA's network operator, installed with its shared device plugin "
        "(shared), or what the cluster already runs, also for SR-IOV (existing).",
        "shared",
    )
    resource: Resource = option("Resource that pods request.", "rdma/rdma_shared_device_a")
    count: Annotated[Count, Field(le=10_000)] | None = option(
        f"How many a node offers. With mode shared, how many pods share its adapters: {SHARES} if left out."
    )
    link_type: Literal["infiniband", "ether"] | None = option(
        "Only adapters of InfiniBand, or of RoCE (ether)."
    )
    interfaces: Annotated[tuple[Interface, ...], each_once("name each interface once")] = option(
        "Only the adapters of these network interfaces, which every node of the pool has.", ()
    )

    @model_validator(mode="after")
    def _check_count(self) -> Rdma:
        if self.mode == "existing" and self.count is None:
            remedy = f"give the number of {self.resource} that `kubectl describe node` shows"
            raise InputError("count", "missing, and the cluster's own plugin decides it", remedy)
        return self

    @property
    def offered(self) -> int:
        """How many of the resource a node offers."""
        return self.count or SHARES

    @property
    def selectors(self) -> dict[str, Any]:
        """Selectors of the shared device plugin (its README, "Devices Selectors")."""
        found: dict[str, Any] = {"vendors": [MELLANOX]}
        if self.link_type:
            found["linkTypes"] = [self.link_type]
        if self.interfaces:
            found["ifNames"] = sorted(self.interfaces)
        return found
