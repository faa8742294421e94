"""What a stack's commands need to know about one kind of cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuform.stack.cluster_access import ClusterAccess
from gpuform.stack.destroy import Teardown
from gpuform.stack.drift.rules import DriftRules
from gpuform.stack.preflight import Preflight
from gpuform.stack.preview.effect import NoResources, PreviewRules
from gpuform.stack.recover import Recovery


@dataclass(frozen=True)
class Cloud:
    """One field for each command; ``recovery`` is None if the stack creates nothing at a cloud."""

    preflight: Preflight
    teardown: type[Teardown]
    recovery: Recovery | None = None
    preview: PreviewRules = field(default_factory=NoResources)
    drift: DriftRules = field(default_factory=DriftRules)
    access: ClusterAccess = field(default_factory=ClusterAccess)
