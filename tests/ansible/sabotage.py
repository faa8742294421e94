"""Changes to a prepared host by people and programs, and the exact findings of the checks."""

from __future__ import annotations

from dataclasses import dataclass

PRODUCT = "NVIDIA A100-SXM4-40GB"
DRIVER, OTHER_DRIVER = "580.95.05", "580.82.07"
TOOLKIT, OLD_TOOLKIT = "1.19.1", "1.17.7"
APPLY = "`gpuform hosts apply lab`"
_DROP_IN = "/etc/containerd/conf.d/zz-own.toml"
_UNIT = "/lib/systemd/system/nvidia-persistenced.service"
_OURS = "/etc/containerd/conf.d/99-nvidia.toml"
_SETTINGS = "/etc/nvidia-container-runtime/config.toml"
_GUARD = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_DRIVER_PACKAGES = (
    "libnvidia-ml1 nvidia-driver-cuda nvidia-fabricmanager nvidia-kernel-open-dkms nvidia-kernel-support "
    "nvidia-persistenced"
)
_TOOLKIT_PACKAGES = (
    "libnvidia-container-tools libnvidia-container1 nvidia-container-toolkit nvidia-container-toolkit-base"
)


@dataclass(frozen=True)
class Sabotage:
    """One change: its command and undo, and fact and remedy of each check that must fail.

    ``by_apply``: the playbook repairs it, as the remedy says.
    """

    name: str
    command: str
    undo: str
    findings: dict[str, tuple[str, str]]
    by_apply: bool = False


def _single(
    name: str, command: str, undo: str, check: str, fact: str, remedy: str, by_apply: bool = False
) -> Sabotage:
    return Sabotage(name, command, undo, {check: (fact, remedy)}, by_apply)


def _installed(packages: str, version: str, hold: bool = True) -> str:
    wanted = " ".join(f"{name}={version}-1" for name in packages.split())
    options = "-y -qq --no-install-recommends --allow-downgrades --allow-change-held-packages"
    held = f"apt-mark hold {packages} >/dev/null" if hold else ""
    return f"set -e; apt-get install {options} {wanted} >/dev/null; {held}"


def _all(packages: str, version: str) -> str:
    return ", ".join(f"{name} {version}-1" for name in packages.split())


_MISMATCH = (
    "nvidia-smi ends with 18: Failed to initialize NVML: Driver/library version mismatch",
    f"reboot the host: the kernel still runs the driver before the upgrade, or run {APPLY}",
)
_REWRITE = f"run {APPLY} to have the drop-in written again"
_UPGRADE = "the next upgrade would change a driver in use"
_REFUSED = "`containerd config dump` ends with 1: containerd: failed to load TOML"
_NO_TOML = (
    f"{_REFUSED}: {_DROP_IN}: (2, 1): expecting a value",
    f"mend or remove the file that it names before containerd is restarted, or run {APPLY}",
)
_CARRIERS = "nvidia-driver-cuda nvidia-kernel-open-dkms"


BY_HAND = Sabotage(
    "driver version changed by hand",
    _installed(_DRIVER_PACKAGES, OTHER_DRIVER),
    _installed(_DRIVER_PACKAGES, DRIVER)
    + "; systemctl -q restart nvidia-persistenced nvidia-fabricmanager || true",
    {
        **dict.fromkeys(("gpus", "driver_version", "persistence", "mig", "cdi"), _MISMATCH),
        "driver_packages": (
            f"{_all(_CARRIERS, OTHER_DRIVER)} installed; {DRIVER} is pinned",
            f"run {APPLY} to bring it back, or pin the one that is installed",
        ),
        "fabricmanager": (f"fabric manager {OTHER_DRIVER}; it must be the driver's {DRIVER}", f"run {APPLY}"),
    },
)

SABOTAGE = (
    BY_HAND,
    _single(
        "hold removed",
        "apt-mark unhold nvidia-driver-cuda",
        "apt-mark hold nvidia-driver-cuda",
        "held",
        "not held: nvidia-driver-cuda",
        f"run `apt-mark hold nvidia-driver-cuda`, or {APPLY}: {_UPGRADE}",
        by_apply=True,
    ),
    Sabotage(
        "drop-in that is no TOML",
        f"echo 'version = ' >{_DROP_IN}",
        f"rm {_DROP_IN}",
        {"runtime": _NO_TOML, "no_gpu_without_request": _NO_TOML},
    ),
    Sabotage(
        "drop-in that takes the runtime away",
        f'printf \'version = 2\\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\\n'
        f'runtime_type = "io.containerd.runc.v2"\\n\' >{_DROP_IN}',
        f"rm {_DROP_IN}",
        {"runtime": ("containerd has no runtime 'nvidia' in effect, but: runc", _REWRITE)},
    ),
    _single(
        "runtime that is not NVIDIA's",
        f"sed -i.bak 's#/usr/bin/nvidia-container-runtime#/usr/bin/runc#' {_OURS}",
        f"mv {_OURS}.bak {_OURS}",
        "runtime",
        "containerd's runtime 'nvidia' runs /usr/bin/runc, not nvidia-container-runtime",
        _REWRITE,
        by_apply=True,
    ),
    _single(
        "containerd without Kubernetes",
        "sed -i.bak '1i disabled_plugins = [\"io.containerd.grpc.v1.cri\"]' /etc/containerd/config.toml",
        "mv /etc/containerd/config.toml.bak /etc/containerd/config.toml",
        "runtime",
        "containerd's disabled_plugins switches the CRI plugin off, so no kubelet can use it",
        "take it out of /etc/containerd/config.toml and restart containerd",
    ),
    Sabotage(
        "toolkit below the floor",
        _installed(_TOOLKIT_PACKAGES, OLD_TOOLKIT),
        _installed(_TOOLKIT_PACKAGES, TOOLKIT),
        {
            "toolkit_version": (
                f"container toolkit {OLD_TOOLKIT} is below the floor 1.19.1 (CVE-2026-24260)",
                f"run {APPLY} to install {TOOLKIT}",
            ),
            "toolkit_packages": (
                f"{_all(_TOOLKIT_PACKAGES, OLD_TOOLKIT)} installed; {TOOLKIT} is pinned",
                f"run {APPLY} to bring it back, or pin the one that is installed",
            ),
        },
        by_apply=True,
    ),
    Sabotage(
        "unit that is missing",
        f"systemctl -q disable --now nvidia-persistenced; mv {_UNIT} /srv; systemctl daemon-reload",
        f"mv /srv/{_UNIT.rpartition('/')[2]} {_UNIT}; systemctl daemon-reload; "
        "systemctl -q enable --now nvidia-persistenced",
        {"units": ("nvidia-persistenced.service is missing", f"run {APPLY}")},
    ),
    _single(
        "unit that does not start at boot",
        "systemctl -q disable containerd",
        "systemctl -q enable containerd",
        "units",
        "containerd.service does not start at boot (disabled)",
        f"`systemctl enable containerd`, or run {APPLY}",
        by_apply=True,
    ),
    _single(
        "MIG layout altered",
        "nvidia-smi mig -i 1 -dci >/dev/null; nvidia-smi mig -i 1 -dgi >/dev/null; "
        "nvidia-smi mig -i 1 -cgi 1g.5gb,1g.5gb -C >/dev/null",
        "nvidia-smi mig -i 1 -dgi >/dev/null; nvidia-smi mig -i 1 -cgi 3g.20gb,2g.10gb,2g.10gb -C >/dev/null",
        "mig",
        "GPU 1 has 2x 1g.5gb; 2x 2g.10gb, 1x 3g.20gb planned",
        f"end what runs on the GPU, then run {APPLY}: a GPU in use is not cut again",
        by_apply=True,
    ),
    _single(
        "GPUs for every image that names them",
        f"sed -i.bak 's/^{_GUARD} = false/{_GUARD} = true/' {_SETTINGS}",
        f"mv {_SETTINGS}.bak {_SETTINGS}",
        "no_gpu_without_request",
        f"{_GUARD} is on: any image that sets NVIDIA_VISIBLE_DEVICES=all sees every GPU",
        f"run `nvidia-ctk config --in-place --set {_GUARD}=false`, or {APPLY}",
        by_apply=True,
    ),
    _single(
        "device without a link",
        "ln -sfn null /dev/nvidiactl; rm -f /dev/char/1:3",
        "rm -f /dev/nvidiactl /dev/char/1:3",
        "device_links",
        "no link in /dev/char to /dev/nvidiactl: a reload of systemd may take it from containers",
        f"run `nvidia-ctk system create-dev-char-symlinks --create-all`, or {APPLY}",
        by_apply=True,
    ),
    _single(
        "time service switched off",
        "systemctl -q disable systemd-timesyncd",
        "systemctl -q enable systemd-timesyncd",
        "time_sync",
        "no time service starts at boot (none of chronyd, chrony, systemd-timesyncd, ntpsec, ntp)",
        f"`systemctl enable --now chrony`, or run {APPLY}",
        by_apply=True,
    ),
)
