"""Types of single values: names valid in Kubernetes, versions, counts and other amounts with bounds."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo

from infra.model.base import Strict, matching, refusing
from infra.model.errors import InputError

# Names of objects and labels: k8s.io/apimachinery, pkg/util/validation/validation.go.
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
ALL_GROUPS = ("all", "ungrouped")
"""Groups of every inventory of Ansible."""
LOCALHOST = "localhost"
_LONGEST_TEXT = 128 * 1024


def _supported(value: str) -> str:
    minor = int(value.split(".")[1])
    if minor < FIRST_MINOR:
        fact = f"Kubernetes {value} is older than 1.{FIRST_MINOR}"
        raise InputError("", fact, f"use 1.{FIRST_MINOR} or newer, in quotes (YAML reads 1.30 as 1.3)")
    patch = int([*value.split("."), "0"][2])
    if minor > _LAST_MINOR or patch > _LAST_PATCH:
        fact = f"there is no Kubernetes {value}"
        raise InputError("", fact, "write it as `kubectl version` prints it, without the v")
    return value


def _dns_1123(longest: int) -> AfterValidator:
    return matching(
        _LABEL,
        "a name that Kubernetes accepts",
        f"use at most {longest} of a-z, 0-9 and -, beginning and ending with a letter or a digit",
        longest,
    )


def _label_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    valid = _LABEL_NAME.fullmatch(name) and len(name) <= 63
    if slash:
        valid = valid and re.fullmatch(_SUBDOMAIN, prefix) and len(prefix) <= 253
    if not valid:
        raise InputError("", f"{value!r} is not a label key", "write it as name or prefix.example/name")
    return value


def _label_value(value: str) -> str:
    if value and (not _LABEL_NAME.fullmatch(value) or len(value) > 63):
        raise InputError(
            "",
            f"{value!r} is not a label value",
            "use at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or a digit",
        )
    return value


def _host_name(value: str) -> str:
    """Also the value of the label kubernetes.io/hostname; must not be a name of an Ansible group."""
    if value in (*ALL_GROUPS, "gpu"):
        raise InputError("", f"{value!r} is the name of a group of hosts", "use another name")
    if value == LOCALHOST:
        fact = f"Ansible takes {value!r} for the machine that it runs on, and uses no ssh"
        raise InputError("", fact, "use another name, with address: 127.0.0.1")
    return value


FIRST_MINOR = 25
"""First Kubernetes with stable Pod Security Admission, which namespaces rely on [its release notes]."""
_LAST_MINOR, _LAST_PATCH = 49, 39
"""Ours, as 1.36 is the newest: three minor versions come a year, and a patch a month for 14 months each
[kubernetes.io/releases, "Patch Releases"]."""
Supported = AfterValidator(_supported)
"""For versions of Kubernetes: not older than ``FIRST_MINOR``, and no number that none will have for years."""
Text = Annotated[
    Strict,
    # Arguments and variables of a process (execve(2)): no NUL, and at most MAX_ARG_STRLEN bytes each.
    refusing(
        lambda value: "\0" in value or len(value.encode()) >= _LONGEST_TEXT,
        "cannot be given to a process",
        "leave out NUL, and use less than 128 KiB",
    ),
]
Name = Annotated[Strict, _dns_1123(63)]
ObjectName = Annotated[
    Strict,
    matching(
        _SUBDOMAIN,
        "a name that Kubernetes accepts",
        "use at most 253 of a-z, 0-9, - and ., beginning and ending with a letter or a digit",
        253,
    ),
]
"""Name of a Secret, a storage class or a RuntimeClass."""
# Node names are <pool>-<number> and become label values of at most 63 characters.
PoolName = Annotated[Strict, _dns_1123(50)]
# A Deployment's pods and a Job's get up to 11 characters more: the pod of an indexed job has INT32's digits.
WorkloadName = Annotated[Strict, _dns_1123(52)]
LabelKey = Annotated[Strict, AfterValidator(_label_key)]
LabelValue = Annotated[Strict, AfterValidator(_label_value)]
HostName = Annotated[
    Strict,
    matching(_SUBDOMAIN, "a name that a node can have", "use at most 63 of a-z, 0-9, - and .", 63),
    AfterValidator(_host_name),
]
INT32 = 2**31 - 1
"""Replicas, parallelism, seconds are int32 in Kubernetes' API; as GiB in bytes it fits resource.Quantity."""
MAX_NODES, MAX_PODS = 5000, 150_000
"""Nodes and pods of a cluster [Kubernetes, considerations for large clusters]."""
MAX_EKS_NODES = 100_000
"""Nodes of an EKS cluster [AWS Containers blog, "Under the hood: Amazon EKS ultra scale clusters"]; more than
``MAX_NODES`` need an agreement with AWS, and a tier of EKS's provisioned control plane."""
Count = Annotated[int, Field(strict=True, ge=1, le=INT32)]


def node_limit(cluster: str | None) -> int:
    return MAX_EKS_NODES if cluster == "aws" else MAX_NODES


def _nodes(value: int, info: ValidationInfo) -> int:
    limit = node_limit((info.context or {}).get("cluster"))
    if value > limit:
        raise InputError("", f"{value} is too large", f"use {limit} or less")
    return value


_EKS_MAXIMUM = {"maximum": MAX_EKS_NODES}
PoolSize = Annotated[int, Field(strict=True, ge=0, json_schema_extra=_EKS_MAXIMUM), AfterValidator(_nodes)]
"""The kind of the cluster is in the validation context."""
NodeCount = Annotated[int, Field(strict=True, ge=1, json_schema_extra=_EKS_MAXIMUM), AfterValidator(_nodes)]
PodCount = Annotated[Count, Field(le=MAX_PODS)]
Minutes = Annotated[Count, Field(le=1440)]
Seconds = Annotated[Count, Field(le=86400)]
"""Of a wait. The bound is ours: an update that waits for more than a day waits for nothing."""
DrainSeconds = Annotated[Seconds, Field(ge=30)]
"""A pod may take 30 s to end [Kubernetes, terminationGracePeriodSeconds, its default]."""
MAX_CORES, MAX_MEMORY_GIB = 8192, 65536
"""Of a machine: NR_CPUS of Linux (arch/x86/Kconfig), and the 64 TiB of x86-64 with four-level page tables
(Documentation/arch/x86/x86_64/5level-paging.rst)."""
Cores = Annotated[Count, Field(le=MAX_CORES)]
MemoryGib = Annotated[Count, Field(le=MAX_MEMORY_GIB)]
VolumeGib = Annotated[Count, Field(ge=3, le=65536)]
"""From Magnum's smallest (api/validation.py, for devicemapper) to EBS's largest (EBS user guide, volume
types); Cinder's largest is the cloud's own."""
GpuCount = Annotated[Count, Field(le=32)]
"""GPUs of a machine: NV_MAX_DEVICES of NVIDIA's driver (open-gpu-kernel-modules, nvlimits.h)."""


def _ascending(counts: tuple[int, ...]) -> tuple[int, ...]:
    """One order for each set of numbers, so that equal sets have equal bytes."""
    return tuple(sorted(set(counts)))


# Tags appear in error paths; the brackets distinguish them from an environment's keys.
Counts = Annotated[
    Annotated[GpuCount, Tag("[number]")]
    | Annotated[tuple[GpuCount, ...], Field(min_length=1), AfterValidator(_ascending), Tag("[list]")],
    Discriminator(lambda value: "[list]" if isinstance(value, list | tuple) else "[number]"),
]
"""A number of GPUs, or a list of accepted numbers."""


def short_digest(content: str) -> str:
    """The first eight hex digits of its SHA-256."""
    return hashlib.sha256(content.encode()).hexdigest()[:8]
