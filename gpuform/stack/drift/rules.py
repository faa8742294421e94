"""What differs in the search for drift between kinds of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool

if TYPE_CHECKING:
    from gpuform.engine import Step


class DriftRules:
    """Rules of a kind of cluster; the defaults are for one that only the engine changes."""

    def require_managed(self, stack: str) -> None:
        """InputError if the engine does not manage the cluster's machines."""

    def selector(self, env: Environment, pool: Pool) -> Mapping[str, str]:
        """Labels of the pool's nodes; if possible not our own, which may have drifted."""
        return {labels.POOL: pool.name}

    def expected(self, env: Environment, step: Step, path: str) -> bool:
        """Whether the cloud itself sets the field at ``path``, so a difference is not drift."""
        return False
