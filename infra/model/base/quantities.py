"""Numbers from texts: quantities of Kubernetes, versions, durations and sizes; and what pods request."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_SCALES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
           "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}  # fmt: skip
_QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)")
_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_UNITS: Mapping[str, int] = {"MB": 2**20, "GB": 2**30, "TB": 2**40}


def cpu_millis(value: str) -> int:
    return round(quantity(value) * 1000)


def memory_bytes(value: str) -> int:
    """Rounded up, as the API server does."""
    return math.ceil(quantity(value))


def quantity(text: object) -> float:
    """A Kubernetes quantity as a number: ``1500m`` is 1.5, ``2Ki`` 2048. Raises ValueError for other text."""
    match = _QUANTITY.fullmatch(str(text))
    if not match:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * _SCALES[match[2] or ""]


def whole_number(text: object) -> int:
    """A count or an amount of bytes; the API server writes whole thousands as 1k. ValueError for others."""
    number = quantity(text)
    if not number.is_integer():
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def version_numbers(version: str) -> tuple[int, ...]:
    """A dotted version for comparison: ``v580.95.05-1`` as (580, 95, 5); empty for text without one."""
    match = _VERSION.match(version)
    return tuple(map(int, match[1].split("."))) if match else ()


def seconds(duration: str) -> int:
    """Seconds in a duration of one unit, such as 15d."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def size_bytes(size: str) -> int:
    """Bytes in a size as Prometheus writes it; its units are powers of two."""
    return int(size[:-2]) * _UNITS[size[-2:]]


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container goes on beside the containers."""
    return container.get("restartPolicy") == "Always"


def total_requests(
    running: Iterable[Mapping[str, Any]], init: Iterable[tuple[bool, Mapping[str, Any]]]
) -> Counter[str]:
    """The larger of containers and sidecars together, and of each init container with the sidecars before it.

    ``init`` says of each init container whether it is a sidecar. As the scheduler counts (k8s.io/
    component-helpers, resource/helpers.go, AggregateContainerRequests).
    """
    total, sidecars, largest = Counter[str](), Counter[str](), Counter[str]()
    for requests in running:
        total.update(requests)
    for goes_on, requests in init:
        if goes_on:
            sidecars.update(requests)
        largest |= sidecars if goes_on else sidecars + Counter(requests)
    total.update(sidecars)
    return total | largest
