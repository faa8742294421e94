"""Preflight: checks of an account or a cluster before anything is created in it. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpuform.checkout.paths import Paths
from gpuform.engine.pending import RELEASE
from gpuform.stack.preflight.check import Finding, local_state
from infra.model.environment import Environment
from infra.model.quantities import version_numbers
from infra.plan.images import releases

WITH_CRDS = (
    *("gpu-operator", "dra-driver-nvidia-gpu", "karpenter-crd", "kube-prometheus-stack"),
    *("kueue", "keda", "cert-manager", "kserve-crd"),
)
SUBJECT = "charts with CRDs"


class Checks(Protocol):
    """All checks of one kind of cluster; ``paths`` and ``stack`` locate the state and name the commands."""

    def __call__(self, env: Environment, paths: Paths, stack: str) -> Iterator[Finding]: ...


@dataclass(frozen=True)
class Preflight:
    """The checks, and whether an update is preceded by them."""

    checks: Checks
    before_update: bool = True


def nothing_to_check(fact: str, fix: str = "") -> Preflight:
    """For a kind without an account: the reason, and the command that checks it, for {stack}."""

    def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
        yield Finding(f"stack {stack}", "SKIP", f"nothing to check: {fact}", fix.format(stack=stack))

    return Preflight(checks, before_update=False)


def run_checks(preflight: Preflight, env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    """The findings, one after another."""
    yield from preflight.checks(env, paths, stack)
    if preflight.before_update:
        yield from check_charts(env, paths, stack)


def check_charts(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    """Charts with CRDs: none may be older than the one that the state beside the checkout has.

    An older chart applies older CRDs. The API server accepts one that lacks a field, and prunes the field
    from every object that is written (Kubernetes documentation, CustomResourceDefinition, pruning).
    """
    planned = {
        item.short_name: item for item in releases(env) if item.version and item.short_name in WITH_CRDS
    }
    by_hand = "helm list --all-namespaces"
    if not planned:
        return
    if (state := local_state(paths, stack)) is None:
        yield Finding(SUBJECT, "SKIP", "not checked: the stack's state is elsewhere", check=by_hand)
        return
    resources = [item for item in state["deployment"].get("resources") or () if item["type"] == RELEASE]
    installed = {chart: version for resource in resources for chart, version in _installed_chart(resource)}
    older = [
        f"{name} {release.version} is older than {installed[name]}"
        for name, release in planned.items()
        if name in installed and version_numbers(str(release.version)) < version_numbers(installed[name])
    ]
    if not older:
        yield Finding(SUBJECT, "PASS", "none is older than what is installed", check=by_hand)
        return
    fact = f"{', '.join(older)}: older CRDs remove fields of live objects"
    fix = "use the version that is installed, or a newer one (gpu_operator.version, or gpuform's own)"
    yield Finding(SUBJECT, "FAIL", fact, fix, by_hand)


def _installed_chart(resource: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Chart and version of a release in the state."""
    inputs = resource.get("inputs") or {}
    if inputs.get("version"):
        yield str(inputs.get("chart")).rpartition("/")[2], str(inputs["version"])
