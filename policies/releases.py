"""Releases of Helm charts, by the chart's name."""

from __future__ import annotations

from policies import contract
from policies.rule import Resource, text


def chart(resource: Resource) -> str:
    """Name of the chart without folder and repository; empty if the resource is not a release."""
    return text(resource.props, "chart").rsplit("/", 1)[-1] if resource.type == contract.RELEASE else ""
