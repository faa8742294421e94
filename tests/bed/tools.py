"""NVIDIA's programs in the packages; ``gpuform toolchain build`` builds them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import NVIDIA_CTK
from lab.toolchain.module_files import Source
from tests.bed.refusal import Refused
from tests.external import module


def nvidia_ctk() -> Path:
    """The real nvidia-ctk: its configuration commands need no GPU."""
    return Toolchain(Paths.here()).path("nvidia-ctk")


def cdi_units() -> dict[str, str]:
    """The toolkit's own CDI units, from the module that nvidia-ctk is built of."""
    names = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
    source = Source("cdi-units", "units for CDI", NVIDIA_CTK.pins, Path("deployments/systemd"), names[0])
    folder = module(source, NVIDIA_CTK.name)
    return {name: (folder / name).read_text() for name in names}


def real_smi() -> dict[str, Path]:
    """The real nvidia-smi and the NVML of $GPUFORM_NVML_LIBRARY, which then replace the fake."""
    library = os.environ.get("GPUFORM_NVML_LIBRARY")
    if not library:
        return {}
    beside = Path(library).with_name("nvidia-smi")
    program = beside if beside.exists() else shutil.which("nvidia-smi")
    if not Path(library).is_file() or not program:
        raise Refused(
            f"GPUFORM_NVML_LIBRARY={library}: needs the library, and nvidia-smi beside it or on PATH"
        )
    return {"libnvidia-ml.so.1": Path(library), "nvidia-smi": Path(program)}
