"""Gangs: how close to each other the nodes of a job's pods are, by labels that the nodes have.

Kueue's rules (0.19.2): apis/kueue/v1beta2/topology_types.go, pkg/util/tas/node.go.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from infra.model import labels
from infra.model.base import LabelKey, Model, each_once
from infra.model.errors import InputError

_MOST_LEVELS = 15
"""A Topology of Kueue has 16 levels; the last is the node."""


def _above_nodes(levels: tuple[str, ...]) -> tuple[str, ...]:
    if labels.HOSTNAME in levels:
        raise InputError(
            f"[{levels.index(labels.HOSTNAME)}]", "the last level is always the node", "leave it out"
        )
    return levels


Levels = Annotated[
    tuple[LabelKey, ...],
    Field(max_length=_MOST_LEVELS),
    each_once("name each label once"),
    AfterValidator(_above_nodes),
]
"""Labels of a pool's nodes above the node itself, the widest first."""


class Placement(Model):
    """How close to each other a gang's nodes are, by one of the two; anywhere in its pool if left out."""

    required: LabelKey | None = Field(
        default=None, description="All its nodes have one value of this label; until they fit, it waits."
    )
    preferred: LabelKey | None = Field(
        default=None,
        description="The same if they fit, else within the level above, else anywhere in the pool.",
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Placement:
        if (self.required is None) == (self.preferred is None):
            fact = "neither required nor preferred is given" if self.required is None else "both are given"
            raise InputError("required", fact, "give one of the two")
        return self

    @property
    def level(self) -> str:
        return self.required or self.preferred or ""
