"""Base of declared types (frozen, no unknown keys), helpers to declare keys, and types of single values."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_validator,
)

from infra.model.base.errors import InputError
from infra.model.base.guard_names import USED_CLUSTERS
from infra.model.base.quantities import cpu_millis, memory_bytes, quantity

Strict = Annotated[str, Field(strict=True)]
"""Only as the base of a type with a validator: no field is any text."""
Flag = Annotated[bool, Field(strict=True)]
NUMBER = r"(0|[1-9][0-9]{0,3})"
"""A part of a version: a number without leading zeros."""
SHARE = r"([1-9][0-9]?|100)%"
"""From 1 to 100 percent."""


def listing(known: Iterable[str], wrong: str = "", family: str = "") -> str:
    """The known names for an error's remedy, after the closest one if it is similar to ``wrong``.

    ``family``: start in which both must be equal, because by letters alone g5.xlarge is close to c5.xlarge.
    """

    def start(name: str) -> str:
        return re.findall(f"^{family}", re.sub("[^a-z0-9]", "", name.lower()))[0] if family else ""

    names = list(known)
    similar = [name for name in names if start(name) == start(wrong)]
    likeness = {name: difflib.SequenceMatcher(None, name, wrong).ratio() for name in similar}
    close = max(similar, key=likeness.__getitem__, default="")  # of equal ones the first
    hint = f"did you mean {close}? " if likeness.get(close, 0) >= 0.6 else ""
    return f"{hint}known: {', '.join(names)}"


class Model(BaseModel):
    """Base of every declared type; an unknown key is an error that lists the known ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Keys that users may expect here but that are not supported: (fact, remedy) for each."""

    def __copy__(self) -> Self:
        """Without what cached properties hold: ``model_copy`` may change the fields they come from."""
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key in cls.KEY_HINTS:
                    raise InputError(str(key), *cls.KEY_HINTS[key])
                if key not in known:
                    raise InputError(str(key), "unknown key", listing(known, str(key)))
        return data


class ClusterModel(Model):
    """Base of the kinds of cluster."""

    kind: str

    @property
    def created(self) -> bool:
        """Whether a stack creates the cluster and its nodes."""
        return self.kind not in USED_CLUSTERS


def required(description: str, **more: Any) -> Any:
    """A key that must be given; ``more`` are keywords of pydantic's ``Field``."""
    return Field(description=description, **more)


def option(description: str, default: Any = None, **more: Any) -> Any:
    """A key that may be left out; a type as ``default`` makes the value."""
    key = "default_factory" if isinstance(default, type) else "default"
    return Field(description=description, **{key: default}, **more)


def matching(pattern: str, noun: str, remedy: str, longest: int | None = None) -> AfterValidator:
    """A text that the whole pattern matches; of the classes \\d and \\w only ASCII counts."""
    compiled = re.compile(pattern, re.ASCII)

    def is_invalid(value: str) -> bool:
        return not compiled.fullmatch(value) or (longest is not None and len(value) > longest)

    return refusing(is_invalid, f"{{!r}} is not {noun}", remedy)


def refusing(is_bad: Callable[[Any], object], fact: str, remedy: str) -> AfterValidator:
    """Refuse values for which ``is_bad`` is true; ``{}`` or ``{!r}`` in ``fact`` stands for the value."""

    def check(value: Any) -> Any:
        if is_bad(value):
            raise InputError("", fact.format(value), remedy)
        return value

    return AfterValidator(check)


def one_of(noun: str, names: Collection[str]) -> AfterValidator:
    """One of the names, which the error for another one lists."""

    def check(value: str) -> str:
        if value not in names:
            raise InputError("", f"unknown {noun} {value!r}", listing(names, value))
        return value

    return AfterValidator(check)


def each_once(
    remedy: str, prefix: str = "", key: Callable[[Any], object] = lambda value: value
) -> AfterValidator:
    """No entry twice; ``prefix`` is put before the entry; spellings with the same ``key`` are one entry."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        keys: list[object] = []
        for index, value in enumerate(values):
            if key(value) in keys:
                raise InputError(f"[{index}]", f"{prefix}{value} is given twice", remedy)
            keys.append(key(value))
        return values

    return AfterValidator(check)


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
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
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


_CPU = re.compile(r"[0-9]{1,19}(m|(\.[0-9]{1,3})?)")
_MEMORY = re.compile(r"[0-9]{1,19}(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|M|G|T)")
HUGE_PAGE = 2 * 2**20
"""Bytes of a huge page of the resource hugepages-2Mi."""


def _cpu(value: str) -> str:
    if not _CPU.fullmatch(value) or not cpu_millis(value):
        raise InputError("", f"{value!r} is not an amount of CPU", "write cores, for example 2, 0.5 or 500m")
    if cpu_millis(value) > MAX_CORES * 1000:
        raise InputError("", f"no machine has {value} cores", f"use {MAX_CORES} or less")
    return value


def _memory(value: str) -> str:
    """Also of volumes, which EBS makes as large as a machine's memory (EBS user guide, volume types)."""
    if not _MEMORY.fullmatch(value) or quantity(value) < 1:
        fact = f"{value!r} is not an amount of memory"
        raise InputError("", fact, "write it with Ki, Mi, Gi, Ti, M, G or T, for example 8Gi")
    if memory_bytes(value) > MAX_MEMORY_GIB * 2**30:
        fact = f"no machine and no volume has {value}"
        raise InputError("", fact, f"use {MAX_MEMORY_GIB // 1024}Ti or less")
    return value


def number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Cpu = Annotated[str, AfterValidator(_cpu)]
CpuRequest = Annotated[Cpu, BeforeValidator(number_as_text, json_schema_input_type=str | float)]
"""An amount of CPU that may be written as a number."""
Memory = Annotated[str, AfterValidator(_memory), Field(strict=True)]
HugePages = Annotated[
    Memory,
    refusing(
        lambda value: memory_bytes(value) % HUGE_PAGE,
        "{} is not a whole number of huge pages of 2Mi",
        "use a multiple of 2Mi, for example 5120Mi or 10Gi",
    ),
]
