"""Amounts of cores, memory and storage, as Kubernetes writes them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.model.base import MOST_CORES, MOST_MEMORY_GIB
from infra.model.errors import InputError
from infra.model.quantity import quantity, whole

_CPU = re.compile(r"[0-9]{1,19}(m|(\.[0-9]{1,3})?)")
_MEMORY = re.compile(r"[0-9]{1,19}(Ki|Mi|Gi|Ti)")
HUGE_PAGE = 2 * 2**20
"""Bytes of a huge page of the resource hugepages-2Mi."""


def _cpu(value: str) -> str:
    if not _CPU.fullmatch(value) or not cpu_millis(value):
        raise InputError("", f"{value!r} is not an amount of CPU", "write cores, for example 2, 0.5 or 500m")
    if cpu_millis(value) > MOST_CORES * 1000:
        raise InputError("", f"no machine has {value} cores", f"use {MOST_CORES} or less")
    return value


def _memory(value: str) -> str:
    """Also of volumes, which EBS makes as large as a machine's memory (EBS user guide, volume types)."""
    if not _MEMORY.fullmatch(value) or not memory_bytes(value):
        raise InputError(
            "", f"{value!r} is not an amount of memory", "write it with Ki, Mi, Gi or Ti, for example 8Gi"
        )
    if memory_bytes(value) > MOST_MEMORY_GIB * 2**30:
        raise InputError(
            "", f"no machine and no volume has {value}", f"use {MOST_MEMORY_GIB // 1024}Ti or less"
        )
    return value


def _huge_pages(value: str) -> str:
    if memory_bytes(value) % HUGE_PAGE:
        fact = f"{value} is not a whole number of huge pages of 2Mi"
        raise InputError("", fact, "use a multiple of 2Mi, for example 5120Mi or 10Gi")
    return value


Cpu = Annotated[str, AfterValidator(_cpu)]
Memory = Annotated[str, AfterValidator(_memory), Field(strict=True)]
HugePages = Annotated[str, AfterValidator(_memory), AfterValidator(_huge_pages), Field(strict=True)]


def cpu_millis(value: str) -> int:
    return round(quantity(value) * 1000)


def memory_bytes(value: str) -> int:
    return whole(value)
