"""Findings of drift: differences from the declaration; and what differs between kinds of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool

if TYPE_CHECKING:
    from gpuform.engine import Step


TAINTS = "spec.taints"
"""Start of the path of a node's taint: the cluster's check names taints, the engine numbers them."""


class DriftRules:
    """Rules of a kind of cluster; the defaults are for one that only the engine changes."""

    def require_managed(self, stack: str) -> None:
        """InputError if the engine does not manage the cluster's machines."""

    def selector(self, env: Environment, pool: Pool) -> Mapping[str, str]:
        """Labels of the pool's nodes; if possible not our own, which may have drifted."""
        return {labels.POOL: pool.name}

    def is_expected(self, env: Environment, step: Step, path: str) -> bool:
        """Whether the cloud itself sets the field at ``path``, so a difference is not drift."""
        return False


@dataclass(frozen=True, order=True)
class Finding:
    """One difference from what the last update made.

    ``path`` is empty if the whole resource is meant. ``expected`` and ``found`` are empty for values that may
    be secret, span lines, or are not scalars.
    """

    resource: str
    path: str
    how: Literal["changed", "missing", "added"]
    by: Literal["engine", "cluster"]
    expected: str = ""
    found: str = ""


@dataclass(frozen=True)
class Drift:
    """All findings of one stack; ``out_of_use`` are the nodes with the taint of the health loop."""

    stack: str
    findings: tuple[Finding, ...]
    out_of_use: tuple[str, ...] = ()

    @classmethod
    def merge(
        cls,
        stack: str,
        engine: Iterable[Finding],
        cluster: Iterable[Finding],
        out_of_use: Iterable[str] = (),
    ) -> Drift:
        """Merge both sources: a finding in both appears once, in the cluster's form, with its values."""
        findings = sorted(set(cluster))
        checked = {finding.resource for finding in findings if finding.path.startswith(TAINTS)}
        engine = [item for item in engine if not (item.resource in checked and item.path.startswith(TAINTS))]
        places = {(finding.resource, finding.path) for finding in findings}
        missing_resources = {resource for resource, path in places if not path}
        unknown = [
            finding
            for finding in set(engine)
            if (finding.resource, finding.path) not in places and finding.resource not in missing_resources
        ]
        return cls(stack, tuple(sorted([*findings, *unknown])), tuple(sorted(out_of_use)))

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform drift --json``."""
        return {
            "stack": self.stack,
            "drift": bool(self.findings),
            "out_of_use": list(self.out_of_use),
            "findings": [asdict(finding) for finding in self.findings],
        }
