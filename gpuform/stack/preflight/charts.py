"""Charts with CRDs: none may be older than the one that the stack has installed.

An older chart applies older CRDs. The API server accepts one that lacks a field, and prunes the field from
every object that is written (Kubernetes documentation, CustomResourceDefinition, pruning).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.checkout.paths import Paths
from gpuform.engine import backend, checkpoint
from gpuform.engine.pending import RELEASE
from gpuform.engine.places import Places
from gpuform.stack.preflight.check import Finding
from infra.model.environment import Environment
from infra.model.quantity import numbers
from infra.plan.images import releases

WITH_CRDS = ("gpu-operator", "dra-driver-nvidia-gpu", "karpenter-crd", "kube-prometheus-stack")
SUBJECT = "charts with CRDs"


def findings(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    """Compare with the state beside the checkout; a stack without one has nothing to compare with."""
    planned = {one.short: one for one in releases(env) if one.version and one.short in WITH_CRDS}
    by_hand = "helm list --all-namespaces"
    if not planned:
        return
    if backend.declared(paths.root, stack) is not None:
        yield Finding(SUBJECT, "SKIP", "not checked: the stack's state is elsewhere", check=by_hand)
        return
    state = checkpoint.deployment(Places(paths).checkpoint(backend.project(paths.root), stack))
    resources = [one for one in state["deployment"].get("resources") or () if one["type"] == RELEASE]
    there = {chart: version for one in resources for chart, version in _installed(one)}
    older = [
        f"{name} {one.version} is older than {there[name]}"
        for name, one in planned.items()
        if name in there and numbers(str(one.version)) < numbers(there[name])
    ]
    if not older:
        yield Finding(SUBJECT, "PASS", "none is older than what is installed", check=by_hand)
        return
    fact = f"{', '.join(older)}: older CRDs remove fields of live objects"
    fix = "use the version that is installed, or a newer one (gpu_operator.version, or gpuform's own)"
    yield Finding(SUBJECT, "FAIL", fact, fix, by_hand)


def _installed(resource: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Chart and version of a release in the state."""
    inputs = resource.get("inputs") or {}
    if inputs.get("version"):
        yield str(inputs.get("chart")).rpartition("/")[2], str(inputs["version"])
