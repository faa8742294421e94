"""Packages of the test repository: NVIDIA's names, versions and relations, with the fakes as contents.

Names and relations are from NVIDIA's repositories for Debian 12 (driver installation guide, Debian;
container toolkit installation guide).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import NVIDIA_CTK
from lab.toolchain.module_files import Source
from tests.bed.repository import Package
from tests.external import module

FAKES = "/usr/local/lib/fake-gpu"
OPEN, PROPRIETARY = "Dual MIT/GPL", "NVIDIA"


def driver(version: str) -> Iterator[Package]:
    """All packages of one driver version, with both flavours of the kernel modules."""
    full = f"{version}-1"
    same = f"(= {full})"
    for name, licence, other in (
        ("nvidia-kernel-open-dkms", OPEN, "nvidia-kernel-dkms"),
        ("nvidia-kernel-dkms", PROPRIETARY, "nvidia-kernel-open-dkms"),
    ):
        module = {"/usr/lib/fake-gpu/module.json": json.dumps({"version": version, "licence": licence})}
        relations = {"Provides": f"nvidia-kernel-dkms-any {same}", "Conflicts": other, "Replaces": other}
        yield Package(name, full, module, (f"nvidia-kernel-support {same}",), relations)
    yield Package("nvidia-kernel-support", full)
    library = {
        "/usr/lib/fake-gpu/library.json": json.dumps({"version": version}),
        "/usr/bin/nvidia-smi": f'#!/bin/sh\nexec {FAKES}/smi.py "$@"\n',
    }
    needs = (f"nvidia-kernel-dkms-any {same}", f"nvidia-persistenced {same}", f"libnvidia-ml1 {same}")
    yield Package("nvidia-driver-cuda", full, library, needs)
    yield Package("libnvidia-ml1", full)
    yield Package("libcuda1", full)
    yield _persistenced(full)
    yield _fabricmanager(version)


def _persistenced(full: str) -> Package:
    unit = _unit("NVIDIA Persistence Daemon", f"{FAKES}/daemon.py persistenced", "nvidia-persistenced")
    files = {"/lib/systemd/system/nvidia-persistenced.service": unit}
    return Package("nvidia-persistenced", full, files, scripts=_enabling("nvidia-persistenced.service"))


def _fabricmanager(version: str) -> Package:
    unit = _unit(
        "NVIDIA fabric manager service", f"{FAKES}/daemon.py fabricmanager {version}", "nvidia-fabricmanager"
    )
    files = {
        "/lib/systemd/system/nvidia-fabricmanager.service": unit,
        "/usr/bin/nv-fabricmanager": f'#!/bin/sh\necho "Fabric Manager version is : {version}"\n',
    }
    branch = version.split(".")[0]  # in the name before 580: NVIDIA/gpu-driver-container, pull request 451
    name = "nvidia-fabricmanager" + (f"-{branch}" if int(branch) < 580 else "")
    return Package(name, f"{version}-1", files)  # NVIDIA's does not enable itself


_LINK = 'mkdir -p /dev/char; ln -sf "$(readlink -f /dev/nvidiactl)" /dev/char/1:3'
"""For a device that a test plays by a link to /dev/null, which is 1:3."""


def toolkit(
    version: str, nvidia_ctk: Path | None = None, units: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Package]:
    """The container toolkit, split as NVIDIA's; ``nvidia_ctk`` is the real program, which queries no GPU.

    ``units`` are the systemd units in the toolkit's source, which has them since 1.18.
    """
    full = f"{version}-1"
    same = f"(= {full})"
    real = "/usr/lib/nvidia-container-toolkit/nvidia-ctk"
    # The real one cannot query a fake GPU or its driver, and prints the version of its build.
    ctk = (
        "#!/bin/sh\n"
        f'case "$1 $2" in "cdi generate") exec {FAKES}/cdi.py "$@" ;; esac\n'
        f'case "$2" in create-dev-char-symlinks) {_LINK}; exit ;; esac\n'
        f'case "$1" in --version | -v) echo "NVIDIA Container Toolkit CLI version {version}"; exit ;; esac\n'
        f'exec {real} "$@"\n'
    )
    shim = '#!/bin/sh\nexec runc "$@"\n'
    files: dict[str, str | Path] = {
        "/usr/bin/nvidia-ctk": ctk,
        "/usr/bin/nvidia-cdi-hook": f'#!/bin/sh\nexec {real} hook "$@"\n',
        "/usr/bin/nvidia-container-runtime": shim,
        "/usr/bin/nvidia-container-runtime.cdi": shim,
    }
    if nvidia_ctk:
        files[real] = nvidia_ctk
    if int(version.split(".")[1]) >= 18:
        files |= {f"/lib/systemd/system/{name}": text for name, text in units.items()}
    configured = {"postinst": _CONFIGURED} if nvidia_ctk else {}
    yield Package("nvidia-container-toolkit-base", full, files, scripts=configured)
    needs = (f"nvidia-container-toolkit-base {same}", f"libnvidia-container-tools {same}")
    hook = {"/usr/bin/nvidia-container-runtime-hook": "#!/bin/sh\nexit 0\n"}
    yield Package("nvidia-container-toolkit", full, hook, needs)
    cli = {"/usr/bin/nvidia-container-cli": f'#!/bin/sh\necho "cli-version: {version}"\n'}
    yield Package("libnvidia-container-tools", full, cli, (f"libnvidia-container1 {same}",))
    yield Package("libnvidia-container1", full)


def mig_manager(version: str = "0.13.1") -> Package:
    """mig-parted as in NVIDIA's package for hosts; the program is the fake."""
    files = {"/usr/bin/nvidia-mig-parted": f'#!/bin/sh\nexec {FAKES}/mig_parted.py "$@"\n'}
    return Package("nvidia-mig-manager", f"{version}-1", files)


def cuda(version: str) -> Package:
    """``cuda-toolkit-12-2`` for ``12.2``; its nvcc only prints its version."""
    text = f"Cuda compilation tools, release {version}, V{version}.140"
    nvcc = f'#!/bin/sh\necho "nvcc: NVIDIA (R) Cuda compiler driver"\necho "{text}"\n'
    name = f"cuda-toolkit-{version.replace('.', '-')}"
    link = f"#!/bin/sh\nln -sfn cuda-{version} /usr/local/cuda\n"  # NVIDIA's does it by update-alternatives
    files = {f"/usr/local/cuda-{version}/bin/nvcc": nvcc}
    return Package(name, f"{version}.2-1", files, scripts={"postinst": link})


def machine(kernel: str) -> Iterator[Package]:
    """Packages for a machine with this kernel, which no distribution has."""
    yield Package(f"linux-headers-{kernel}", kernel.split("-")[0])
    yield Package("dkms", "3.0.10-8+deb12u9")  # newer than the distribution's, which installs a compiler


# Postinst of NVIDIA's package: write its configuration, enable its units.
_CONFIGURED = """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
mkdir -p /etc/nvidia-container-runtime
nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
systemctl daemon-reload
for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
    [ ! -e "/lib/systemd/system/$unit" ] || systemctl enable --now "$unit" || true
done
"""


def _unit(title: str, command: str, name: str) -> str:
    return (
        f"[Unit]\nDescription={title}\n\n"
        f"[Service]\nType=notify\nNotifyAccess=all\nExecStart={command}\nRuntimeDirectory={name}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def _enabling(unit: str) -> dict[str, str]:
    start = f"systemctl daemon-reload\nsystemctl enable --now {unit} || true\n"
    stop = f"systemctl disable --now {unit} || true\n"
    return {
        "postinst": f'#!/bin/sh\nset -e\nif [ "$1" = configure ]; then\n{start}fi\n',
        "prerm": f'#!/bin/sh\nset -e\nif [ "$1" = remove ]; then\n{stop}fi\n',
        "postrm": "#!/bin/sh\nset -e\nsystemctl daemon-reload || true\n",
    }


def nvidia_ctk() -> Path:
    """The real nvidia-ctk: its configuration commands need no GPU."""
    return Toolchain(Paths.here()).path("nvidia-ctk")


def cdi_units() -> dict[str, str]:
    """The toolkit's own CDI units, from the module that nvidia-ctk is built of."""
    names = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")
    source = Source(
        "cdi-units", "units for CDI", NVIDIA_CTK.module_path, Path("deployments/systemd"), names[0]
    )
    folder = module(source, NVIDIA_CTK.name)
    return {name: (folder / name).read_text() for name in names}
