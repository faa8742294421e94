"""Programs of NVIDIA's that the packages carry; they are built by ``gpuform toolchain build``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from gpuform.paths import Paths
from gpuform.toolchain import Toolchain
from gpuform.toolchain.catalogue import NVIDIA_CTK


def nvidia_ctk() -> Path:
    """The real nvidia-ctk: what it does with configurations needs no GPU."""
    return Toolchain(Paths.here()).path("nvidia-ctk")


def cdi_units() -> dict[str, str]:
    """The toolkit's own units for the CDI specification, from the module that nvidia-ctk is built of."""
    asked = subprocess.run(
        ["go", "mod", "download", "-json", f"{NVIDIA_CTK.pins}@v{NVIDIA_CTK.version}"],
        cwd=Paths.here().root / "toolchain" / NVIDIA_CTK.name,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(json.loads(asked.stdout)["Dir"]) / "deployments/systemd"
    names = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
    return {name: (folder / name).read_text() for name in names}
