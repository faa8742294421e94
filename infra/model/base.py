"""Base of every type of the environment (frozen, no unknown keys), and names valid in Kubernetes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from infra.model.errors import InputError
from infra.model.pasted import content

_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_GROUPS = ("all", "gpu", "ungrouped")


def listing(known: Iterable[str], wrong: str = "") -> str:
    """The known names for an error's remedy, after the closest one if it is similar to ``wrong``."""
    names = list(known)
    close = difflib.get_close_matches(wrong, names, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(names)}"


class Model(BaseModel):
    """Base of every declared type; an unknown key is an error that lists the known ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Keys that users may expect here but that are not supported: (fact, remedy) for each."""

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


def _dns_1123(longest: int) -> AfterValidator:
    def check(value: str) -> str:
        if not _DNS_1123.fullmatch(value) or len(value) > longest:
            raise InputError(
                "",
                f"{value!r} is not a name that Kubernetes accepts",
                f"use at most {longest} of a-z, 0-9 and -, beginning and ending with a letter or a digit",
            )
        return value

    return AfterValidator(check)


def _label_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    fine = _LABEL_NAME.fullmatch(name) and len(name) <= 63
    if slash:
        fine = fine and _DNS_SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253
    if not fine:
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
    if not _DNS_SUBDOMAIN.fullmatch(value) or len(value) > 63:
        raise InputError(
            "", f"{value!r} is not a name that a node can have", "use at most 63 of a-z, 0-9, - and ."
        )
    if value in _GROUPS:
        raise InputError("", f"{value!r} is the name of a group of hosts", "use another name")
    return value


def _file_path(value: str) -> str:
    """The name of a file has at most 255 bytes (limits.h, NAME_MAX)."""
    if content(value) or any(len(part.encode()) > 255 for part in value.split("/")):
        raise InputError("", "is not a path", "give the path of the file, not its content")
    return value


def _context_name(value: str) -> str:
    if not value.isprintable():
        raise InputError("", "has more than one line", "write it as `kubectl config get-contexts` does")
    return value


ContextName = Annotated[str, Field(strict=True), AfterValidator(_context_name)]
FilePath = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_file_path)]
Name = Annotated[str, Field(strict=True), _dns_1123(63)]
# Node names are <pool>-<number> and become label values of at most 63 characters.
PoolName = Annotated[str, Field(strict=True), _dns_1123(50)]
# A Deployment's pods and a Job's get up to 11 characters more: the pod of an indexed job has INT32's digits.
WorkloadName = Annotated[str, Field(strict=True), _dns_1123(52)]
LabelKey = Annotated[str, Field(strict=True), AfterValidator(_label_key)]
LabelValue = Annotated[str, Field(strict=True), AfterValidator(_label_value)]
HostName = Annotated[str, Field(strict=True), AfterValidator(_host_name)]
INT32 = 2**31 - 1
"""Replicas, parallelism, seconds are int32 in Kubernetes' API; as GiB in bytes it fits resource.Quantity."""
MOST_NODES = 5000
"""Nodes of a cluster [Kubernetes, considerations for large clusters]."""
Count = Annotated[int, Field(strict=True, ge=1, le=INT32)]
NodeCount = Annotated[Count, Field(le=MOST_NODES)]
GpuCount = Annotated[Count, Field(le=32)]
"""GPUs of a machine: NV_MAX_DEVICES of NVIDIA's driver (open-gpu-kernel-modules, nvlimits.h)."""


def _ascending(counts: tuple[int, ...]) -> tuple[int, ...]:
    """One order for each set of numbers, so that equal sets have equal bytes."""
    wanted = sorted(set(counts))
    if list(counts) != wanted:
        raise InputError("", f"{list(counts)} is not in ascending order, each number once", f"write {wanted}")
    return counts


# Tags appear in error paths; the brackets distinguish them from an environment's keys.
Counts = Annotated[
    Annotated[GpuCount, Tag("[number]")]
    | Annotated[tuple[GpuCount, ...], Field(min_length=1), AfterValidator(_ascending), Tag("[list]")],
    Discriminator(lambda value: "[list]" if isinstance(value, list | tuple) else "[number]"),
]
"""A number of GPUs, or a list of accepted numbers."""
