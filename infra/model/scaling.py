"""By how many requests a Deployment is scaled, and where its pods report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from infra.model.base import MOST_PODS, Count, Model, PodCount, Text
from infra.model.errors import InputError
from infra.model.rollout import Path, Port

KEDA = "gpuform-keda"
"""Namespace of KEDA."""
TRITON_PORT = 8002
"""Triton's default of --metrics-port [Triton, user guide, metrics]."""

LONGEST_S = 3600
"""Most seconds of a HorizontalPodAutoscaler's stabilizationWindowSeconds [k8s.io/api, autoscaling/v2]."""


class Metrics(Model):
    """Where each pod reports its metrics to Prometheus."""

    port: Port = Field(default=TRITON_PORT, description="Port of the container; Triton's if left out.")
    path: Path = Field(default="/metrics", description="HTTP path on that port.")


class Scale(Model):
    """Number of pods by requests per second, never by the load of a GPU."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        key: ("a busy GPU does not tell how many requests wait", "give qps_per_replica")
        for key in ("gpu", "gpu_utilization", "utilization")
    }

    min: Annotated[int, Field(strict=True, ge=0, le=MOST_PODS)] = Field(
        default=1, description="Fewest pods; 0 needs a query, because then no pod counts requests."
    )
    max: PodCount = Field(description="Most pods; the pools must have room for them.")
    qps_per_replica: Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)] = Field(
        description="Requests per second for each pod: a pod is added for each further such number. Less "
        "than a pod can answer, or the count of answered requests never exceeds it."
    )
    query: Text | None = Field(
        default=None,
        description="PromQL with the requests per second of all pods as one number. If left out, the "
        "requests that Triton's pods have answered (nv_inference_request_success).",
    )
    cooldown_seconds: Annotated[Count, Field(le=LONGEST_S)] = Field(
        default=300, description="Seconds of fewer requests until pods are taken away, the last one included."
    )

    @model_validator(mode="after")
    def _has_bounds(self) -> Scale:
        if self.min > self.max:
            raise InputError("min", f"{self.min} is more than max, {self.max}", f"use {self.max} or less")
        if self.min == 0 and self.query is None:
            fact = "without pods none counts requests, so the first request would start no pod"
            remedy = "use 1 or more, or give a query of what is in front of the pods (ingress, gateway)"
            raise InputError("min", fact, remedy)
        if self.query is not None and not self.query.strip():
            raise InputError("query", "is empty", "give a PromQL expression, or leave it out")
        return self
