"""Limits of the change of a pool's nodes to another MIG layout."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from infra.model.base.fields import SHARE, DrainSeconds, Model, NodeCount, Strict, matching, option

Reset = Literal["gpu", "reboot"]


# Tags appear in error paths; the brackets distinguish them from an environment's keys.
Nodes = Annotated[
    Annotated[NodeCount, Tag("[number]")]
    | Annotated[
        Strict,
        matching(SHARE, "a share of the nodes", "write a number, or a share such as 25%"),
        Tag("[share]"),
    ],
    Discriminator(lambda value: "[share]" if isinstance(value, str) else "[number]"),
]
"""A number of nodes, or a share of them in percent."""


class Relayout(Model):
    """Limits of the change on existing nodes.

    Disruption budgets of the pods apply as well.
    """

    in_use: Literal["drain", "refuse"] = option(
        "Where pods use a GPU of a node: evict them within their budgets, or change nothing.", "drain"
    )
    max_unavailable: Nodes = option(
        "Nodes that are unavailable at the same time, or a share such as 25%, rounded down; one at least.", 1
    )
    timeout_seconds: DrainSeconds | None = option(
        "Limit for the eviction on one node, and again for the change with its reboot; 600, or 1800 if "
        "nodes reboot, if left out."
    )
