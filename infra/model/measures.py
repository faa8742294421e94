"""Types of the monitoring values (durations, sizes, addresses, fields), each validated on its own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from infra import versions
from infra.model.base import NUMBER, Strict, matching
from infra.model.dcgm import FIELDS
from infra.model.errors import InputError
from infra.model.places import plain_address

_SECONDS: Mapping[str, int] = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_UNITS: Mapping[str, int] = {"MB": 2**20, "GB": 2**30, "TB": 2**40}
_LEAST_RETENTION, _MOST_RETENTION = 2 * 3600, 10 * 365 * 86400
_MOST_BYTES = 2**63 - 1
"""Prometheus counts bytes with 63 bits (its units.Base2Bytes)."""
_MAJORS = 50
"""Ours: about as many as come in two years."""
_LEAST_BYTES = 3 * 128 * 2**20
"""Prometheus, storage, "On-disk layout"."""


def seconds(duration: str) -> int:
    """Seconds in a duration of one unit, such as 15d."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def size_bytes(size: str) -> int:
    """Bytes in a size as Prometheus writes it; its units are powers of two."""
    return int(size[:-2]) * _UNITS[size[-2:]]


def _retention(value: str) -> str:
    if seconds(value) < _LEAST_RETENTION:
        fact = f"{value} is less than Prometheus keeps in one block"
        raise InputError("", fact, "use 2h or more")
    if seconds(value) > _MOST_RETENTION:
        fact = f"{value} is longer than one Prometheus keeps its measurements"
        raise InputError("", fact, "use 10y or less, and remote_write for a longer time")
    return value


def _retention_size(value: str) -> str:
    if size_bytes(value) > _MOST_BYTES:
        raise InputError("", f"{value} is more than any volume has", "write what the volume has room for")
    if size_bytes(value) < _LEAST_BYTES:
        fact = f"{value} is less than the write-ahead log takes, of which three files of 128 MB are kept"
        raise InputError("", fact, "use 384MB or more")
    return value


def _interval(value: str) -> str:
    if not 5 <= seconds(value) <= 120:
        fact = f"{value} is not between 5s and 2m"
        remedy = "use 15s: rules look back 5m, and need several samples in that time"
        raise InputError("", fact, remedy)
    return value


def _url(value: str) -> str:
    if not plain_address(value, "http", "https"):
        fact = "is not a plain http or https address"
        raise InputError("", fact, "write it as https://..., without a user, a token or a query in it")
    return value


def _field(value: str) -> str:
    if value not in FIELDS:
        fact = f"unknown field {value!r}, with which dcgm-exporter would not start"
        raise InputError("", fact, _closest(value))
    return value


def _closest(value: str) -> str:
    close = difflib.get_close_matches(value.upper(), FIELDS, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}docs/howto/monitoring.md lists all known fields"


def _help(value: str) -> str:
    if not value or any(letter in value for letter in ',"\n'):
        fact = "cannot be a CSV column" if value else "is empty"
        raise InputError("", fact, "write some words without comma, quotes and line breaks")
    return value


def _near(value: str) -> str:
    """Each major version of the chart may rename values (its README, "Upgrading an existing Release")."""
    tested = int(versions.KUBE_PROMETHEUS_STACK.partition(".")[0])
    if abs(int(value.partition(".")[0]) - tested) > _MAJORS:
        fact = f"{value} is years away from {versions.KUBE_PROMETHEUS_STACK}, which the settings are for"
        raise InputError("", fact, f"use {tested - _MAJORS}.0.0 or newer, or leave it out")
    return value


Retention = Annotated[
    Strict,
    matching(r"[1-9]\d{0,8}[mhdwy]", "a retention time", "write a number and one of m, h, d, w, y: 15d"),
    AfterValidator(_retention),
]
RetentionSize = Annotated[
    Strict,
    matching(r"[1-9]\d{0,15}(MB|GB|TB)", "a size", "write a number and one of MB, GB, TB: 40GB"),
    AfterValidator(_retention_size),
]
Interval = Annotated[
    Strict,
    matching(r"[1-9]\d{0,5}[sm]", "an interval", "write a number and s or m: 15s"),
    AfterValidator(_interval),
]
Address = Annotated[Strict, AfterValidator(_url)]
ChartVersion = Annotated[
    Strict,
    matching(rf"{NUMBER}\.{NUMBER}\.{NUMBER}", "a chart version", "write the whole version, as 88.5.3"),
    AfterValidator(_near),
]
FieldName = Annotated[Strict, AfterValidator(_field)]
Help = Annotated[Strict, AfterValidator(_help)]
