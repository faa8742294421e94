"""Checks of notebooks against each other, and against the kind of cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.errors import InputError
from infra.model.notebook import LEAST_CPU, LEAST_MEMORY, OURS
from infra.model.openstack import OpenstackCluster
from infra.model.workload import NotebookWorkload

if TYPE_CHECKING:
    from infra.model.environment import Environment


def check(env: Environment) -> None:
    """Refuse notebooks that are too small or not their user's only one, and volumes never created."""
    seen: dict[tuple[str, str], int] = {}
    for index, work in enumerate(env.workloads):
        if not isinstance(work, NotebookWorkload):
            continue
        path, key = f"workloads[{index}]", (work.namespace, work.user)
        if key in seen:
            fact = f"{work.user} has a notebook in namespace {work.namespace}: workloads[{seen[key]}]"
            raise InputError(f"{path}.user", fact, "leave one of them out, or use another namespace")
        seen[key] = index
        _check_pod(work, path)
        if work.home:
            _check_class(env, work.home.storage_class, f"{path}.home.storage_class")


def _check_pod(work: NotebookWorkload, path: str) -> None:
    if not re.match("[a-z]", work.name):
        fact = f"{work.name!r} begins with a digit, and the name of its Service may not"
        raise InputError(f"{path}.name", fact, "begin it with a letter")
    if cpu_millis(work.cpu) < cpu_millis(LEAST_CPU):
        fact = f"{work.cpu} is less than an editor needs"
        raise InputError(f"{path}.cpu", fact, f"use {LEAST_CPU} or more")
    if memory_bytes(work.memory) < memory_bytes(LEAST_MEMORY):
        fact = f"{work.memory} is less than an editor needs"
        raise InputError(f"{path}.memory", fact, f"use {LEAST_MEMORY} or more")
    if work.command:
        fact = "the editor is what runs"
        raise InputError(f"{path}.command", fact, "leave it out, or build an image on the editor's")
    for name in OURS:
        if name in work.env:
            raise InputError(f"{path}.env.{name}", "secret and cull set it", "leave it out, or use these")


def _check_class(env: Environment, given: str | None, path: str) -> None:
    """EKS has no default class since 1.30, and Magnum's Heat driver makes no class."""
    if env.cluster.kind == "embedded" and given:
        raise InputError(path, "the embedded cluster has one class", "leave it out")
    heat = isinstance(env.cluster, OpenstackCluster) and env.cluster.driver == "heat"
    if (env.cluster.kind == "aws" or heat) and given is None:
        fact = "missing, and the cluster has no default class: the volume would never be created"
        raise InputError(path, fact, "name one that it has" + (", as gp2" if not heat else ""))
