"""NVIDIA's container toolkit as packages: the real nvidia-ctk and units, and fakes for what needs a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from gpuform.paths import Paths
from gpuform.toolchain import Toolchain
from gpuform.toolchain.catalogue import NVIDIA_CTK
from tests.bed.deb import Package

VERSION = NVIDIA_CTK.version
UNITS = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
FIRST_WITH_UNITS = (1, 18)


def packages(version: str = VERSION) -> list[Package]:
    """The four packages under a version; whatever it says, the binary is the one that the toolchain has."""
    exact = f"{version}-1"
    fields = {"Multi-Arch": "foreign"}
    new = tuple(int(part) for part in version.split(".")[:2]) >= FIRST_WITH_UNITS
    base = Package(
        "nvidia-container-toolkit-base",
        exact,
        {
            "/usr/libexec/nvidia-ctk": Toolchain(Paths.here()).path("nvidia-ctk"),
            "/usr/bin/nvidia-ctk": _NVIDIA_CTK,
            "/usr/libexec/fake-nvidia-cdi": _FAKE_CDI,
            "/usr/bin/nvidia-container-runtime": _FAKE_RUNTIME,
            **({f"/lib/systemd/system/{name}": _unit(name) for name in UNITS} if new else {}),
        },
        ("python3",),
        fields,
        {"postinst": _POSTINST},
    )
    return [
        base,
        Package(
            "nvidia-container-toolkit",
            exact,
            {"/usr/bin/nvidia-container-runtime-hook": _FAKE_HOOK},
            (f"nvidia-container-toolkit-base (= {exact})", f"libnvidia-container-tools (= {exact})"),
        ),
        Package("libnvidia-container-tools", exact, {}, (f"libnvidia-container1 (>= {exact})",)),
        Package("libnvidia-container1", exact),
    ]


def _unit(name: str) -> str:
    """NVIDIA's own unit, from the module that nvidia-ctk is built of."""
    folder = Paths.here().root / "toolchain" / NVIDIA_CTK.name
    asked = subprocess.run(
        ["go", "mod", "download", "-json", f"{NVIDIA_CTK.pins}@v{NVIDIA_CTK.version}"],
        cwd=folder,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=True,
    )
    return (Path(json.loads(asked.stdout)["Dir"]) / "deployments/systemd" / name).read_text()


# Everything but the generation of the CDI specification, which asks the driver's library, is NVIDIA's own.
_NVIDIA_CTK = """\
#!/bin/sh
# fake-nvidia-ctk: `cdi generate` is played, all else is the real one.
[ "$1 $2" != "cdi generate" ] || exec /usr/libexec/fake-nvidia-cdi "$@"
exec /usr/libexec/nvidia-ctk "$@"
"""

_FAKE_CDI = '''\
#!/usr/bin/python3
"""fake-nvidia-cdi: a CDI specification of the GPUs that nvidia-smi lists."""
import json
import os
import re
import subprocess
import sys

listed = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout
output = os.environ.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", "")
for argument in sys.argv:
    if argument.startswith("--output="):
        output = argument.split("=", 1)[1]
devices, gpu, slices = [], "", 0
for line in listed.splitlines():
    if found := re.match(r"GPU (\\d+):.*UUID: (GPU-[^)]+)", line):
        gpu, slices = found[1], 0
        names = [gpu, found[2]]
    elif found := re.match(r"\\s+MIG .*UUID: (MIG-[^)]+)", line):
        names = [f"{gpu}:{slices}", found[1]]
        slices += 1
    else:
        continue
    node = {"deviceNodes": [{"path": f"/dev/nvidia{gpu}", "type": "c", "major": 195, "minor": int(gpu)}]}
    devices += [{"name": name, "containerEdits": node} for name in names]
everything = [node for device in devices for node in device["containerEdits"]["deviceNodes"]]
unique = list({node["path"]: node for node in everything}.values())
devices.append({"name": "all", "containerEdits": {"deviceNodes": unique}})
spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {}}
os.makedirs(os.path.dirname(output), exist_ok=True)
with open(output, "w") as file:
    json.dump(spec, file, indent=2)
'''

_FAKE_RUNTIME = """\
#!/bin/sh
# fake-nvidia-container-runtime: what the real one is to containers without a request.
exec runc "$@"
"""

_FAKE_HOOK = """\
#!/bin/sh
# fake-nvidia-container-runtime-hook
exit 0
"""

# What the real packages do after they are unpacked.
_POSTINST = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
mkdir -p /etc/nvidia-container-runtime
/usr/libexec/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
systemctl daemon-reload
for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
    [ ! -e "/lib/systemd/system/$unit" ] || systemctl enable --now "$unit" || true
done
"""
