"""Preflight: checks of an account or a cluster before anything is created in it. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.checkpoint import guard_records
from gpuform.engine.pending import RELEASE
from gpuform.stack.preflight.check import Finding, local_state
from infra.model.base.quantities import version_numbers
from infra.model.environment import Environment
from infra.model.workload.workload import DeploymentWorkload
from infra.plan import losses
from infra.plan.images import releases

WITH_CRDS = (
    *("gpu-operator", "dra-driver-nvidia-gpu", "karpenter-crd", "kube-prometheus-stack"),
    *("kueue", "keda", "cert-manager", "kserve-crd"),
)
SUBJECT = "charts with CRDs"
_STACK = "pulumi:pulumi:Stack"


class Checks(Protocol):
    """All checks of one kind of cluster; ``paths`` and ``stack`` locate the state and name the commands."""

    def __call__(self, env: Environment, paths: Paths, stack: str) -> Iterator[Finding]: ...


Resources = Sequence[Mapping[str, Any]]
Refusals = Callable[[Environment, Resources, bool], Iterator[InputError]]
"""Changes that the cluster's provider refuses, by the state's resources and, if it may be asked, its API."""


@dataclass(frozen=True)
class Preflight:
    """The checks, whether an update is preceded by them, and the changes that the provider refuses.

    ``of_nodes`` are those that remain if a GitOps controller applies the platform; all if it is left out.
    """

    checks: Checks
    before_update: bool = True
    refusals: Refusals = lambda env, resources, live: iter(())
    of_nodes: Checks | None = None


def nothing_to_check(fact: str, fix: str = "") -> Preflight:
    """For a kind without an account: the reason, and the command that checks it, for {stack}."""

    def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
        yield Finding(f"stack {stack}", "SKIP", f"nothing to check: {fact}", fix.format(stack=stack))

    return Preflight(checks, before_update=False)


def run_checks(
    preflight: Preflight, env: Environment, paths: Paths, stack: str, only: Sequence[str] = ()
) -> Iterator[Finding]:
    """The findings, one after another; ``only``, as in `scope`, is by default that of the last update.

    Raises InputError as `require_possible`.
    """
    state = local_state(paths, stack)
    require_possible(preflight.refusals, env, state, live=True)
    only = only or last_only(state["deployment"].get("resources") or () if state else ())
    checks = preflight.of_nodes if only and preflight.of_nodes else preflight.checks
    yield from checks(env, paths, stack)
    if preflight.before_update and not only:
        yield from check_charts(env, paths, stack)


def require_possible(check: Refusals, env: Environment, state: Mapping[str, Any] | None, live: bool) -> None:
    """Raise InputError for what is refused, but not of a new or replaced cluster. None: state elsewhere."""
    fixed = guard_records(state).get("fixed") if state else None
    resources = (state["deployment"].get("resources") or ()) if state else ()
    found: list[InputError] = []
    if state is None or fixed == losses.contents(env):
        found += check(env, resources, live)
    if fixed in (None, losses.contents(env)):  # not every kind of cluster has a guard
        found += _refuse_switches(env, resources)
    if found:
        raise InputError(found[0].path, found[0].fact, found[0].remedy, others=found[1:])


def _refuse_switches(env: Environment, resources: Resources) -> Iterator[InputError]:
    """A workload with a Service to or from ``blue_green``: both resources have it, so one must go first."""
    remedy = "remove the workload, run `gpuform up`, and declare it again; or give it another name"
    services = {_name(one["metadata"]) for one in recorded(resources, "kubernetes:core/v1:Service")}
    plain = {
        _name(one["metadata"]) for one in recorded(resources, "kubernetes:apps/v1:Deployment")
    } & services
    coloured = {
        _name(one["deployment"]["metadata"]) for one in recorded(resources, "gpuform:workloads:BlueGreen")
    }
    for index, work in enumerate(env.workloads):
        if not isinstance(work, DeploymentWorkload) or not work.service:
            continue
        if (work.namespace, work.name) in (plain if work.blue_green else coloured):
            way = "to" if work.blue_green else "from"
            fact = f"{work.name!r} exists, and no update changes it {way} blue_green"
            yield InputError(f"workloads[{index}].update", fact, remedy)


def _name(metadata: Mapping[str, Any]) -> tuple[str, str]:
    return metadata.get("namespace", "default"), metadata["name"]


def recorded(resources: Resources, kind: str) -> list[dict[str, Any]]:
    """Inputs and outputs of the resources of a type, one mapping for each resource."""
    found = [item for item in resources if item["type"] == kind]
    return [{**item, **item.get("inputs", {}), **item.get("outputs", {})} for item in found]


def last_version(resources: Resources) -> str:
    """Kubernetes' version that the last update declared; empty before the first."""
    environments = [one.get("environment") for one in recorded(resources, _STACK)]
    return next((str(one["cluster"].get("version", "")) for one in environments if one), "")


def last_only(resources: Resources) -> tuple[str, ...]:
    """Which part of the platform the last update was limited to; empty without a limit or an update."""
    return next((tuple(one.get("only") or ()) for one in recorded(resources, _STACK)), ())


def refuse_version(present: str, declared: str, step: str, back: str) -> Iterator[InputError]:
    """By Kubernetes' version skew policy; ``step``, which names the {next} one, and ``back`` are remedies."""
    old, new = version_numbers(present)[:2], version_numbers(declared)[:2]
    has = f"the cluster has {present}, and its control plane"
    if old and new < old:
        yield InputError("cluster.version", f"{has} does not go back to {declared}", back)
    elif old and new > (old[0], old[1] + 1):
        remedy = step.format(next=f"{old[0]}.{old[1] + 1}")
        yield InputError("cluster.version", f"{has} takes one minor version at a time", remedy)


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
    charts = recorded(state["deployment"].get("resources") or (), RELEASE)
    installed = {one["chart"].rpartition("/")[2]: one["version"] for one in charts if one.get("version")}
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
