"""The fake machine: its GPUs, the driver on disk, the driver in the kernel, its MIG instances.

/etc/fake-gpu.json sets ``product`` and ``count``. Packages of the test repository put the driver on disk;
the state of the "kernel" is in /run, so every boot clears it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.simulator.hardware import GPUS, Gpu

CONFIG = Path("/etc/fake-gpu.json")
MODULE = Path("/usr/lib/fake-gpu/module.json")  # of the dkms package: {"version", "licence"}
LIBRARY = Path("/usr/lib/fake-gpu/library.json")  # of nvidia-driver-cuda: {"version"}
RUN = Path("/run/fake-gpu")
LOADED = RUN / "loaded.json"
PERSISTENT = RUN / "persistence"  # set by nvidia-smi -pm
DAEMON = Path("/run/nvidia-persistenced/active")
MIG = Path("/var/lib/fake-gpu/mig.json")
NOUVEAU = Path("/etc/fake-nouveau")  # the kernel has nouveau, and loads it unless it is blacklisted
KEPT_OUT = RUN / "nouveau-kept-out"
OTHERS = RUN / "modules"
NVIDIA = ("nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm")


class Refusal(Exception):
    """An error message of the driver, with the exit status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Card:
    index: int
    device: str
    gpu: Gpu

    @property
    def bus(self) -> str:
        return f"00000000:00:{7 + self.index:02X}.0"

    @property
    def uuid(self) -> str:
        return "GPU-" + identifier("gpu", self.index)


def identifier(*owner: object) -> str:
    """A UUID that stays the same on this machine for the same arguments."""
    seed = [Path("/etc/machine-id").read_text().strip(), *map(str, owner)]
    digits = hashlib.sha256("/".join(seed).encode()).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def read(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return result


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def cards() -> list[Card]:
    """The machine's GPUs, whichever driver they have."""
    played = read(CONFIG)
    result = [(device, gpu) for device, gpu in GPUS.items() if gpu.product == played.get("product")]
    if not result:
        return []
    device, gpu = result[0]
    return [Card(index, device, gpu) for index in range(played.get("count", 1))]


def nouveau() -> bool:
    """Whether nouveau is loaded: at boot unless blacklisted, or since."""
    if not NOUVEAU.exists():
        return False
    return not KEPT_OUT.exists() or NOUVEAU.stat().st_mtime_ns > KEPT_OUT.stat().st_mtime_ns


def blacklisted() -> bool:
    files = [path for top in ("/etc/modprobe.d", "/usr/lib/modprobe.d") for path in Path(top).glob("*.conf")]
    return any(re.search(r"^\s*blacklist\s+nouveau\b", path.read_text(), re.MULTILINE) for path in files)


def load() -> bool:
    """Load the driver on disk into the kernel unless one is loaded; returns whether one is loaded now."""
    if not LOADED.exists() and MODULE.exists() and not nouveau() and cards():
        write(LOADED, read(MODULE))
        _list_module()
    return LOADED.exists()


def _list_module() -> None:
    """Register the module as depmod would: the toolkit's nvidia-cdi-refresh.service reads this file."""
    dep = Path("/lib/modules") / os.uname().release / "modules.dep"
    line = "updates/dkms/nvidia.ko:\n"
    if not dep.exists() or line not in dep.read_text():
        dep.parent.mkdir(parents=True, exist_ok=True)
        with dep.open("a") as file:
            file.write(line)


def loaded() -> dict[str, Any]:
    """The loaded driver; loads it on the first call, as nvidia-modprobe does.

    Raises Refusal with NVML's codes: 9 without a driver, 18 if the library has another version.
    """
    if not load():
        raise Refusal(
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n",
        )
    driver, library = read(LOADED), read(LIBRARY)
    if driver["version"] != library.get("version"):
        short = ".".join(str(library.get("version")).split(".")[:2])
        raise Refusal(
            18, f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}"
        )
    return driver


def persistence() -> bool:
    return PERSISTENT.exists() or DAEMON.exists()
