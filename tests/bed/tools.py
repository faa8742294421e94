"""Programs of NVIDIA's that the packages carry; they are built by ``gpuform toolchain build``."""

from __future__ import annotations

from pathlib import Path

from gpuform.paths import Paths
from gpuform.toolchain import Toolchain


def nvidia_ctk() -> Path:
    """The real nvidia-ctk: what it does with configurations needs no GPU."""
    return Toolchain(Paths.here()).path("nvidia-ctk")
