"""Rules over autoscaling: the number of pods follows requests, not the load of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policies import contract
from policies.rule import Resource, Rule, get

_LOAD = re.compile(
    r"DCGM_FI_PROF_\w+|DCGM_FI_DEV_(?:GPU|MEM_COPY|ENC|DEC)_UTIL\b|accelerator[_/|]duty_cycle\b"
    r"|gpuform:(?:device:util_ratio|\w+:gpus_used)\b|\w*gpu_util(?:i[sz]ation)?(?:_ratio|_percent)?\b",
    re.IGNORECASE,
)
"""Metrics of a GPU's load: dcgm-exporter's, GKE's, recorded series, Triton's, and others by their name."""


def _by_load(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    metrics = sorted({metric for text in _texts(_scaling(resource)) for metric in _LOAD.findall(text)})
    if metrics:
        yield f"scales by {', '.join(metrics)}: a busy GPU does not tell how many requests wait"


def _scaling(resource: Resource) -> Any:
    """What says by what it is scaled; the rest of an InferenceService is pods, with texts of their own."""
    spec = resource.props.get("spec")
    if resource.type != contract.INFERENCE:
        return spec
    parts = [get(spec, part) for part in ("predictor", "transformer", "explainer")]
    return [get(part, key) for part in parts for key in ("scaleMetric", "autoScaling")]


def _texts(value: Any) -> Iterator[str]:
    """Every text at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


RULES = (
    Rule(
        "no-scaling-by-gpu-load",
        "Nothing is scaled by the load of GPUs: a GPU is busy with one request as with many.",
        "high",
        "scale by requests per second (kind: inference with scale), or by requests that wait",
        contract.AUTOSCALERS,
        _by_load,
    ),
)
