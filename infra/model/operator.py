"""NVIDIA's part of the platform: its operator, or its device plugin alone; what holds for every node."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.model.base import LabelKey, Model
from infra.model.labels import NVIDIA_GPU


class GpuOperatorSpec(Model):
    """NVIDIA's GPU operator, settings that hold for every node."""

    mode: Literal["operator"] = "operator"
    mig_strategy: Literal["none", "single", "mixed"] = Field(
        default="mixed",
        description="How slices are offered: mixed as nvidia.com/mig-3g.20gb, single as nvidia.com/gpu.",
    )
    gpu_taint: LabelKey = Field(default=NVIDIA_GPU, description="Key of the taint on every node with GPUs.")
    driver: Literal["operator", "host"] = Field(
        default="operator", description="Who installs NVIDIA's driver."
    )
    toolkit: Literal["operator", "host"] = Field(
        default="operator", description="Who installs NVIDIA's container toolkit."
    )
    repository: str | None = Field(
        default=None,
        strict=True,
        pattern=r"^(https?|oci)://\S+$",
        description="Helm repository with the operator's chart; NVIDIA's own if left out.",
    )
