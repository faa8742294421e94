"""Placement of pods: the packing scheduler, priorities, and namespaces with a quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from infra import versions
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    INT32,
    NUMBER,
    Flag,
    Model,
    Name,
    PoolName,
    Strict,
    Supported,
    listing,
    matching,
    option,
    required,
)
from infra.model.base.namespaces import PLACEHOLDER

PLACEHOLDER_VALUE = -1000
"""Below every pod without a class (0); Karpenter starts nodes for any priority."""
MAX_PRIORITY = 1_000_000_000
"""Highest value for users; Kubernetes' own classes are above (PriorityClass, API reference)."""


Version = Annotated[
    Strict,
    matching(
        rf"1\.{NUMBER}\.{NUMBER}", "a version of Kubernetes", "write the whole version, for example 1.34.4"
    ),
    Supported,
]


class Scheduling(Model):
    """Which scheduler places the pods that request GPUs."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "kubernetes_version": ("unknown key", "write version, for example version: 1.34.4")
    }

    packer: Flag = option(
        "Fill nodes one after the other, so that whole ones stay free for pods that need many GPUs: pods "
        "with GPUs get their own scheduler (gpuform-packer), all others keep the cluster's.",
        False,
    )
    version: Version | None = option(
        "Kubernetes version of the cluster and of the scheduler, for example 1.34.4 (existing cluster, own "
        "hosts; OpenStack if no scheduler of its minor version is pinned)."
    )


def _priority(name: str) -> str:
    if name.startswith("system-") or name == PLACEHOLDER:
        owner = "gpuform" if name == PLACEHOLDER else "Kubernetes"
        raise InputError("", f"{name!r} is reserved for {owner}", "use another name")
    return name


PriorityName = Annotated[Name, AfterValidator(_priority)]
PriorityValue = Annotated[int, Field(strict=True, ge=PLACEHOLDER_VALUE + 1, le=MAX_PRIORITY)]
Amount = Annotated[int, Field(strict=True, ge=0, le=INT32)]
Amounts = Annotated[
    # Tags appear in error paths; the brackets distinguish them from an environment's keys.
    Annotated[Amount, Tag("[number]")]
    | Annotated[dict[Strict, Amount], Field(min_length=1), Tag("[slices]")],
    Discriminator(lambda value: "[slices]" if isinstance(value, dict) else "[number]"),
]
"""A number of what a pool offers, or a number for each of its MIG profiles."""


class Namespace(Model):
    """A namespace and its GPU quota; it is created whether or not a workload names it."""

    name: Name = required("Name; created with its Pod Security level, unless it is default.")
    pod_security: Literal["restricted", "baseline", "privileged"] = option(
        "Pod Security level; a policy names the namespaces that may be privileged.", "restricted"
    )
    quota: dict[PoolName, Amounts] | None = option(
        "GPUs, shares or slices of each pool that its pods may request together; for a pool with several "
        "kinds of slice {profile: number}. None of a pool that is not named. Pools that offer the same "
        "resource cannot be distinguished: name all of them, and their numbers add up. No limit if left out."
    )


def check_scheduling(cluster: str, minor: str | None, scheduling: Scheduling | None) -> None:
    """Refuse a version if the cluster's is known, and a missing version if it is not.

    ``minor``: the cluster's minor version, if declared; the whole version follows from it if one is pinned.
    """
    if scheduling is None:
        return
    if not scheduling.packer:
        if scheduling.version is not None:
            fact = "the cluster's own scheduler places all pods"
            raise InputError("scheduling.version", fact, "leave it out, or set packer: true")
        return
    if cluster in ("existing", "hosts"):
        if scheduling.version is None:
            fact = "missing, and a scheduler fits only a cluster of its own minor version"
            remedy = "write it as `kubectl version` prints it, without the v"
            raise InputError("scheduling.version", fact, remedy)
        return
    if minor is not None and minor not in versions.KUBE_SCHEDULER:
        _check_own_version(minor, scheduling.version)
        return
    if scheduling.version is not None:
        fact = "cluster.version sets it" if minor else f"it is {versions.KUBERNETES} here"
        raise InputError("scheduling.version", fact, "leave it out")


def _check_own_version(minor: str, version: str | None) -> None:
    if version is None:
        fact = f"missing, and gpuform pins no scheduler of Kubernetes {minor}"
        raise InputError("scheduling.version", fact, "write it as `kubectl version` prints it, without the v")
    if version.rpartition(".")[0] != minor:
        fact = (
            f"{version} is not a version of Kubernetes {minor}, "
            "and a scheduler fits only its own minor version"
        )
        raise InputError("scheduling.version", fact, f"use one of {minor}")


def check_priorities(known: Mapping[str, int], workloads: Sequence[Any]) -> None:
    """Refuse a workload with an undeclared priority."""
    for index, workload in enumerate(workloads):
        name = workload.priority
        if name is not None and name not in known:
            path = f"workloads[{index}].priority"
            if not known:
                fact = f"unknown priority {name!r}"
                raise InputError(path, fact, f"declare it: priorities: {{{name}: 100}}")
            raise InputError(path, f"unknown priority {name!r}", listing(known, name))
