"""Kernel modules of a host, or of the kernel below its driver pod."""

from __future__ import annotations

from typing import Any

from testinfra.host import Host

OPEN, PROPRIETARY = "Dual MIT/GPL", "NVIDIA"
"""Licences of the two flavours of the kernel module (open-gpu-kernel-modules; nvidia.ko)."""


def loaded_modules(host: Host) -> set[str]:
    return {line.split()[0] for line in host.run("lsmod").stdout.splitlines()[1:] if line.strip()}


def modinfo(host: Host, field: str) -> str:
    """A field of the module nvidia; empty if there is none."""
    result: Any = host.run("modinfo -F %s nvidia", field)
    return result.stdout.strip() if result.rc == 0 else ""
