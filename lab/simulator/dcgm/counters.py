"""Reads a counters' csv as dcgm-exporter does: three columns, ``#`` comments, all else ends the exporter.

A field that DCGM refuses only at run time (the GPU does not have it) is not an error; it has no series.
"""

from __future__ import annotations

import csv

from lab.simulator.dcgm.fields import EXPORTER, KNOWN, NOT_PLAYED, Counter

KEYS = ("dcgm-metrics.csv", "metrics")
"""Key of the ConfigMap: the operator's, and that of dcgm-exporter's own chart."""
TYPES = ("gauge", "counter", "histogram", "summary", "label")


class CountersError(ValueError):
    """The exporter ends with this message."""


def read(text: str) -> tuple[Counter, ...]:
    """The counters that a csv asks for, in its order; raises CountersError in the exporter's own words."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found: dict[str, Counter] = {}
    for number, record in enumerate(csv.reader(lines, skipinitialspace=True)):
        fields = [field.strip(" ") for field in record]
        if len(fields) != 3:
            raise CountersError(
                f"malformed CSV record; err: failed to parse line {number} (`[{' '.join(fields)}]`), "
                "expected 3 fields"
            )
        found.setdefault(fields[0], _counter(*fields))
    if not found:
        raise CountersError("malformed configmap contents; err: no metrics found")
    return tuple(counter for name, counter in found.items() if name not in NOT_PLAYED)


def _counter(name: str, kind: str, text: str) -> Counter:
    if name not in KNOWN | NOT_PLAYED:
        raise CountersError(f"could not find DCGM field; err: unknown ExporterCounter field '{name}'")
    if name not in EXPORTER and kind not in TYPES:
        raise CountersError(f"could not find Prometheus metric type '{kind}'")
    return Counter(name, kind, text)


def of(data: dict[str, str]) -> tuple[Counter, ...]:
    """The counters in a ConfigMap; raises CountersError."""
    key = next((key for key in KEYS if key in data), None)
    if key is None:
        raise CountersError(f"Could not read metrics file '{KEYS[0]}'; err: no such file or directory")
    return read(data[key])
