"""The container toolkit: its version, that the runtime uses it, and which containers see a GPU."""

from __future__ import annotations

import re
import tomllib

import pytest
from testinfra.host import Host

from gpuform.hosts.checks import connections, container, nvidia_smi, runtime_config
from gpuform.hosts.checks import packages as package_manager
from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import CheckFailure, expect, first_line
from gpuform.hosts.checks.packages import Packages, expect_version, upstream_version
from gpuform.hosts.checks.runtime_config import RuntimeConfig
from infra import facts

CLOSED, FLOOR = list(facts.fixes("container-toolkit").items())[-1]
"""The newest fix of an escape from a container."""
REFUSED = "1.18.0"
"""It replaces containerd's ``imports``, and with them the settings of the cluster's installer."""
HANDLER, BINARY = "nvidia", "nvidia-container-runtime"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
IN_POD = "/usr/local/nvidia/toolkit"
CONFIGS = (
    "/etc/nvidia-container-runtime/config.toml",
    f"{IN_POD}/.config/nvidia-container-runtime/config.toml",
)
GUARD = "accept-nvidia-visible-devices-envvar-when-unprivileged"


@pytest.fixture
def ctk(toolkit: Host, place: connections.Connection, expected: Expected) -> str:
    path = "nvidia-ctk" if place.machine else f"{IN_POD}/nvidia-ctk"
    expect(toolkit.exists(path), f"{path} is not there", f"run {expected.apply}")
    return path


@pytest.fixture
def config(toolkit: Host, place: connections.Connection, expected: Expected) -> RuntimeConfig:
    if expected.own_containerd and place.machine is None:
        pytest.skip(f"{expected.distribution} configures containerd where the toolkit's pod cannot see it")
    return runtime_config.read(toolkit, expected, place.machine is None)


def test_toolkit_version(toolkit: Host, ctk: str, place: connections.Connection, expected: Expected) -> None:
    """The toolkit has the pinned version, and none below the safe minimum unless an older one is pinned."""
    for found in sorted(_versions(toolkit, ctk, place), key=_numbers):
        if _numbers(expected.toolkit_version) >= _numbers(FLOOR):
            expect(
                _numbers(found) >= _numbers(FLOOR),
                f"container toolkit {found} is below the floor {FLOOR} ({CLOSED})",
                f"run {expected.apply} to install {expected.toolkit_version}",
            )
        overwrites = f"container toolkit {REFUSED} overwrites containerd's imports"
        expect(found != REFUSED, overwrites, f"run {expected.apply}")
        expect(
            found == expected.toolkit_version,
            f"container toolkit {found} is installed; {expected.toolkit_version} is pinned",
            f"run {expected.apply} to bring it back, or pin the one that is installed",
        )


def test_toolkit_packages(packages: Packages, expected: Expected) -> None:
    """Every package of the toolkit has the pinned version: mixed versions start no container."""
    if not expected.gpu_count:
        pytest.skip("the host has no GPUs")
    names = re.compile(r"nvidia-container-toolkit(-base)?|libnvidia-container(1|-tools)")
    found = {name: v for name, v in packages.installed.items() if names.fullmatch(name)}
    expect_version(found, expected.toolkit_version, "container toolkit", expected.apply)


def test_runtime(
    toolkit: Host, config: RuntimeConfig, place: connections.Connection, expected: Expected
) -> None:
    """The container runtime gives containers their GPUs, by its second runtime or by CDI, and keeps runc."""
    runtime, mend = expected.runtime, f"run {expected.apply} to have the drop-in written again"
    if expected.own_containerd:
        runtime = f"containerd of {expected.distribution}"
        mend = f"run {expected.apply}, which restarts {expected.distribution}: it finds the runtime then"
    expect(
        config.serves_kubernetes,
        f"{runtime}'s disabled_plugins switches the CRI plugin off, so no kubelet can use it",
        "take it out of /etc/containerd/config.toml and restart containerd",
    )
    if expected.mode == "cdi":
        expect(
            config.cdi is not False and config.cdi is not None,
            f"{runtime} does not read CDI (enable_cdi)",
            mend,
        )
        unread = [folder for folder in config.cdi_dirs if folder.rstrip("/") in CDI_FOLDERS]
        expect(bool(unread), f"{runtime} reads CDI from {list(config.cdi_dirs)} only", mend)
    else:
        handlers = ", ".join(sorted(config.binaries)) or "none"
        expect(
            HANDLER in config.binaries,
            f"{runtime} has no runtime {HANDLER!r} in effect, but: {handlers}",
            mend,
        )
        binary = config.binaries[HANDLER]
        expect(
            binary.rpartition("/")[2] == BINARY,
            f"{runtime}'s runtime {HANDLER!r} runs {binary or 'its default program'}, not {BINARY}",
            mend,
        )
        if place.machine:
            expect(toolkit.exists(binary), f"{binary}, which {runtime} is to run, is not there", mend)
    own = [name for name in ("runc", "crun") if name in config.binaries]
    expect(bool(own), f"{runtime} has lost its own runtime: only {', '.join(config.binaries)} is left", mend)
    expect(
        config.default in config.binaries,
        f"{runtime}'s default runtime {config.default!r} is not configured",
        mend,
    )


def test_cdi(toolkit: Host, driver: Host, ctk: str, expected: Expected) -> None:
    """The CDI specification names every GPU, or its slices in MIG mode."""
    listed = toolkit.run(f"{ctk} --quiet cdi list")
    names = set(re.findall(r"nvidia\.com/gpu=(\S+)", listed.stdout))
    mend = f"run {expected.apply}, or `nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml`"
    if not names and expected.mode != "cdi":
        pytest.skip("mode runtime needs no CDI specification, and there is none")
    expect(
        listed.rc == 0 and bool(names),
        f"no CDI device is listed: {first_line(listed.stderr or listed.stdout)}",
        mend,
    )
    missing = []
    for gpu in nvidia_smi.parse_list(nvidia_smi.ask(driver, "nvidia-smi -L", expected)):
        wanted = [{slice_.uuid, f"{gpu.index}:{n}"} for n, slice_ in enumerate(gpu.mig)] or [
            {gpu.uuid, str(gpu.index)}
        ]
        missing += [min(either) for either in wanted if not either & names]
    expect(not missing, f"the CDI specification lacks {', '.join(missing)}", mend)


def test_device_links(machine: Host, expected: Expected) -> None:
    """Every device has its link in /dev/char: without one, a reload of systemd takes it from containers."""
    if not expected.gpu_count:
        pytest.skip("the host has no GPUs")
    unlinked = container.unlinked_devices(machine)
    expect(
        not unlinked,
        f"no link in /dev/char to {', '.join(unlinked)}: a reload of systemd may take it from containers",
        f"run `nvidia-ctk system create-dev-char-symlinks --create-all`, or {expected.apply}",
    )


def test_no_gpu_without_request(
    toolkit: Host, config: RuntimeConfig, place: connections.Connection, expected: Expected
) -> None:
    """A container without a GPU request sees none, whatever NVIDIA_VISIBLE_DEVICES its image sets."""
    own = expected.own_containerd
    programs = {binary or "runc" for binary in config.binaries.values()}
    if any(program.rpartition("/")[2].startswith(BINARY) for program in programs):
        expect(
            _accepts(toolkit, expected) is False,
            f"{GUARD} is on: any image that sets NVIDIA_VISIBLE_DEVICES=all sees every GPU",
            f"run `nvidia-ctk config --in-place --set {GUARD}=false`, or {expected.apply}",
        )
    for program in sorted(programs) if place.machine else ():
        found = container.devices(toolkit, program, own.programs if own else "")
        seen = sorted(name for name in found if name.startswith("nvidia"))
        expect(
            not seen,
            f"a container that {program} starts without a request sees {', '.join(seen)}",
            f"run {expected.apply}, and see `nvidia-ctk config` for what hands GPUs out",
        )


def _accepts(toolkit: Host, expected: Expected) -> bool:
    """Whether that variable applies to unprivileged containers; by default it does."""
    text = toolkit.run(f"cat {' '.join(CONFIGS)} 2>/dev/null").stdout
    try:
        return bool(tomllib.loads(text).get(GUARD, True))
    except tomllib.TOMLDecodeError as error:
        raise CheckFailure(
            f"the toolkit's config.toml is no TOML: {error}", f"run {expected.apply}"
        ) from None


def _versions(host: Host, ctk: str, place: connections.Connection) -> set[str]:
    """Versions from the tool itself and from its package, which may differ."""
    said = re.search(r"version v?(\d+\.\d+\.\d+)", host.run(f"{ctk} --version").stdout)
    versions = {said[1]} if said else set()
    if place.machine:
        installed = package_manager.read_packages(host).installed.get("nvidia-container-toolkit-base")
        versions |= {upstream_version(installed)} if installed else set()
    if not versions:
        raise CheckFailure(f"`{ctk} --version` names no version", "install the toolkit from its packages")
    return versions


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
