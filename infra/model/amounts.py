"""Types of amounts and other single values: quantities of Kubernetes, versions, values of monitoring."""

from __future__ import annotations

import difflib
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra import versions
from infra.model.base import NUMBER, Strict, matching, refusing
from infra.model.dcgm import FIELDS
from infra.model.errors import InputError
from infra.model.hostnames import is_plain_url
from infra.model.quantities import cpu_millis, memory_bytes, quantity, seconds, size_bytes
from infra.model.values import MAX_CORES, MAX_MEMORY_GIB

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


Cpu = Annotated[str, AfterValidator(_cpu)]
Memory = Annotated[str, AfterValidator(_memory), Field(strict=True)]
HugePages = Annotated[
    Memory,
    refusing(
        lambda value: memory_bytes(value) % HUGE_PAGE,
        "{} is not a whole number of huge pages of 2Mi",
        "use a multiple of 2Mi, for example 5120Mi or 10Gi",
    ),
]


_MIN_RETENTION_S, _MAX_RETENTION_S = 2 * 3600, 10 * 365 * 86400
_MAX_BYTES = 2**63 - 1
"""Prometheus counts bytes with 63 bits (its units.Base2Bytes)."""
_TESTED_MAJOR = int(versions.KUBE_PROMETHEUS_STACK.partition(".")[0])
_MAX_MAJOR_DISTANCE = 50
"""Ours: about as many as come in two years."""
_MIN_BYTES = 3 * 128 * 2**20
"""Prometheus, storage, "On-disk layout"."""


def _field(value: str) -> str:
    if value not in FIELDS:
        fact = f"unknown field {value!r}, with which dcgm-exporter would not start"
        raise InputError("", fact, _closest(value))
    return value


def _closest(value: str) -> str:
    close = difflib.get_close_matches(value.upper(), FIELDS, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}docs/howto/monitoring.md lists all known fields"


Retention = Annotated[
    Strict,
    matching(r"[1-9]\d{0,8}[mhdwy]", "a retention time", "write a number and one of m, h, d, w, y: 15d"),
    refusing(
        lambda value: seconds(value) < _MIN_RETENTION_S,
        "{} is less than Prometheus keeps in one block",
        "use 2h or more",
    ),
    refusing(
        lambda value: seconds(value) > _MAX_RETENTION_S,
        "{} is longer than one Prometheus keeps its measurements",
        "use 10y or less, and remote_write for a longer time",
    ),
]
RetentionSize = Annotated[
    Strict,
    matching(r"[1-9]\d{0,15}(MB|GB|TB)", "a size", "write a number and one of MB, GB, TB: 40GB"),
    refusing(
        lambda value: size_bytes(value) > _MAX_BYTES,
        "{} is more than any volume has",
        "write what the volume has room for",
    ),
    refusing(
        lambda value: size_bytes(value) < _MIN_BYTES,
        "{} is less than the write-ahead log takes, of which three files of 128 MB are kept",
        "use 384MB or more",
    ),
]
Interval = Annotated[
    Strict,
    matching(r"[1-9]\d{0,5}[sm]", "an interval", "write a number and s or m: 15s"),
    refusing(
        lambda value: not 5 <= seconds(value) <= 120,
        "{} is not between 5s and 2m",
        "use 15s: rules look back 5m, and need several samples in that time",
    ),
]
Address = Annotated[
    Strict,
    refusing(
        lambda value: not is_plain_url(value, "http", "https"),
        "is not a plain http or https address",
        "write it as https://..., without a user, a token or a query in it",
    ),
]
ChartVersion = Annotated[
    Strict,
    matching(rf"{NUMBER}\.{NUMBER}\.{NUMBER}", "a chart version", "write the whole version, as 88.5.3"),
    # Each major version of the chart may rename values (its README, "Upgrading an existing Release").
    refusing(
        lambda value: abs(int(value.partition(".")[0]) - _TESTED_MAJOR) > _MAX_MAJOR_DISTANCE,
        f"{{}} is years away from {versions.KUBE_PROMETHEUS_STACK}, which the settings are for",
        f"use {_TESTED_MAJOR - _MAX_MAJOR_DISTANCE}.0.0 or newer, or leave it out",
    ),
]
FieldName = Annotated[Strict, AfterValidator(_field)]
_HELP_REMEDY = "write some words without comma, quotes and line breaks"
Help = Annotated[
    Strict,
    refusing(lambda value: not value, "is empty", _HELP_REMEDY),
    refusing(lambda value: set(value) & set(',"\n'), "cannot be a CSV column", _HELP_REMEDY),
]
