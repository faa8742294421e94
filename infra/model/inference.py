"""Checks of inference workloads against the rest of the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.workload import DeploymentWorkload, InferenceWorkload, Workload

if TYPE_CHECKING:
    from infra.model.environment import Environment


def check(env: Environment) -> None:
    """Refuse a number of pods that depends on metrics of no Prometheus, an unknown neighbour, and a name
    that KServe gives its objects.
    """
    for index, work in enumerate(env.workloads):
        if not isinstance(work, InferenceWorkload):
            continue
        path = f"workloads[{index}]"
        if work.scale and env.monitoring is None:
            fact = "nothing is monitored, so nothing counts requests"
            raise InputError(f"{path}.scale", fact, "add monitoring: {}, or give replicas instead")
        others = [one.name for one in env.workloads if one.namespace == work.namespace and one is not work]
        if work.deployment in others:
            fact = f"KServe makes a Deployment {work.deployment!r}, and another workload has that name"
            raise InputError(f"{path}.name", fact, "give one of the two another name")
        if work.near and work.near not in others:
            fact = f"namespace {work.namespace} has no other workload {work.near!r}"
            remedy = listing(others, work.near) if others else "leave it out"
            raise InputError(f"{path}.near", fact, remedy)


def at_most(env: Environment) -> Environment:
    """With the most pods of each scaled workload instead of what scales them."""
    return fixed(env, lambda work: work.pods)


def without_models(env: Environment) -> Environment:
    """With a Deployment of its own instead of KServe's for each workload with a model."""
    works = tuple(
        one.model_copy(update={"model": None}) if isinstance(one, InferenceWorkload) else one
        for one in env.workloads
    )
    return env.model_copy(update={"workloads": works})


def fixed(env: Environment, pods: Callable[[InferenceWorkload], int]) -> Environment:
    """With a number of pods, which may be 0, of each inference workload instead of what scales them."""
    return env.model_copy(update={"workloads": tuple(_fixed(one, pods) for one in env.workloads)})


def _fixed(work: Workload, pods: Callable[[InferenceWorkload], int]) -> Workload:
    if not isinstance(work, InferenceWorkload):
        return work
    fields = {key: getattr(work, key) for key in DeploymentWorkload.model_fields}
    # Not checked again: what fits the most pods, such as a step of an update, may exceed fewer.
    return DeploymentWorkload.model_construct(**{**fields, "kind": "deployment", "replicas": pods(work)})
