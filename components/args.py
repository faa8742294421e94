"""Arguments that several components share."""

from __future__ import annotations

from dataclasses import dataclass

from infra.model.environment import Environment
from infra.plan.charts import ChartRelease


@dataclass(frozen=True, kw_only=True)
class EnvironmentArgs:
    """The environment; the component's objects follow from it alone."""

    environment: Environment


@dataclass(frozen=True, kw_only=True)
class ReleaseArgs:
    """A planned Helm release."""

    release: ChartRelease
