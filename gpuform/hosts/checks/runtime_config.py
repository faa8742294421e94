"""The container runtime's effective configuration, merged from all its files.

On a host the runtime prints it (``containerd config dump``, ``crio config``). The toolkit's pod has no
runtime: the files that the operator mounts there are read in the order in which containerd reads them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from testinfra.host import Host

from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import CheckFailure, first_line
from infra.facts import Distribution

CRI_PLUGINS = {
    4: "io.containerd.cri.v1.runtime",
    3: "io.containerd.cri.v1.runtime",
    2: "io.containerd.grpc.v1.cri",
}
"""By the version of the configuration: containerd 2.3, 2.0, 1.3 [its RELEASES.md, docs/cri/config.md]."""
ASK = {"containerd": "containerd config dump", "crio": "crio config"}
POD_FILES = "/runtime/config-dir/*.toml /runtime/config-dir/conf.d/*.toml /runtime/config-dir.d/*.toml"
_MARK = "# gpuform: next file"


@dataclass(frozen=True)
class RuntimeConfig:
    """Settings that decide how a container starts.

    ``binaries`` has the program of each handler, "" for the runtime's default (runc); ``cdi`` is None if the
    configuration does not set it.
    """

    default: str
    binaries: Mapping[str, str]
    cdi: bool | None
    cdi_dirs: tuple[str, ...]
    serves_kubernetes: bool = True


def read(host: Host, expected: Expected, in_pod: bool) -> RuntimeConfig:
    """The effective configuration; one that the runtime itself refuses is a finding."""
    runtime, apply = expected.runtime, expected.apply
    if in_pod:
        text = _files_text(host, POD_FILES)
    elif expected.own_containerd:
        text = _distribution_text(host, expected.own_containerd)
    else:
        text = _host_text(host, runtime, apply)
    try:
        parts = [tomllib.loads(part) for part in text.split(_MARK)]
    except tomllib.TOMLDecodeError as error:
        raise CheckFailure(
            f"{runtime}'s configuration is no TOML: {error}", f"mend or remove that file, or run {apply}"
        ) from None
    config = merged(parts)
    if expected.own_containerd:  # files instead of `config dump`, so without the defaults of containerd 2.0
        cri = config.get("plugins", {}).get(CRI_PLUGINS[3], {})
        cri.setdefault("enable_cdi", True)
        cri.setdefault("cdi_spec_dirs", ["/etc/cdi", "/var/run/cdi"])
    return containerd(config) if runtime == "containerd" else crio(config)


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One configuration; a drop-in may not have a higher version than the file that imports it."""
    config: dict[str, Any] = {}
    for part in parts:
        _merge(config, part)
    root = next((part for part in parts if "imports" in part), {}).get("version")
    highest = max((part.get("version", 0) for part in parts), default=0)
    if root is not None and highest > root:
        raise CheckFailure(
            f"a drop-in has configuration version {highest}, and containerd's own file {root}: "
            "containerd 2.3 may not start with them",
            "let gpu_operator.toolkit_env.RUNTIME_CONFIG_SOURCE begin with file",
        )
    return config


def containerd(config: Mapping[str, Any]) -> RuntimeConfig:
    plugins, version = config.get("plugins", {}), config.get("version", 0)
    cri: Mapping[str, Any] = next((plugins[name] for name in CRI_PLUGINS.values() if name in plugins), {})
    if not cri and version > max(CRI_PLUGINS):
        raise CheckFailure(
            f"containerd's configuration has version {version}, which is newer than those known here",
            "use a newer gpuform, or an older containerd",
        )
    runtimes = cri.get("containerd", {}).get("runtimes", {})
    return RuntimeConfig(
        default=cri.get("containerd", {}).get("default_runtime_name", "runc"),
        binaries={name: (one.get("options") or {}).get("BinaryName", "") for name, one in runtimes.items()},
        cdi=cri.get("enable_cdi"),
        cdi_dirs=tuple(cri.get("cdi_spec_dirs", ())),
        serves_kubernetes=not any("cri" in name.split(".") for name in config.get("disabled_plugins", ())),
    )


def crio(config: Mapping[str, Any]) -> RuntimeConfig:
    """Read CRI-O's configuration; CDI is always on, in the folders that it names."""
    part = config.get("crio", {}).get("runtime", {})
    return RuntimeConfig(
        default=part.get("default_runtime", ""),
        binaries={name: one.get("runtime_path", "") for name, one in part.get("runtimes", {}).items()},
        cdi=True,
        cdi_dirs=tuple(part.get("cdi_spec_dirs", ("/etc/cdi", "/var/run/cdi"))),
    )


def _host_text(host: Host, runtime: str, apply: str) -> str:
    command = ASK[runtime]
    result = host.run(command)
    if result.rc == 0:
        return str(result.stdout)
    if result.rc == 127:
        raise CheckFailure(f"{runtime} is not installed", f"run {apply}")
    raise CheckFailure(
        f"`{command}` ends with {result.rc}: {first_line(result.stderr or result.stdout)}",
        f"mend or remove the file that it names before {runtime} is restarted, or run {apply}",
    )


def _distribution_text(host: Host, distribution: Distribution) -> str:
    """What k3s or RKE2 wrote at its last start, with the drop-ins that it imports."""
    if not host.file(distribution.config).exists:
        services = " or ".join(distribution.services)
        pytest.skip(f"{distribution.config} is not there yet: {services} has not started")
    try:
        written = tomllib.loads(_files_text(host, distribution.config).split(_MARK)[0])
    except tomllib.TOMLDecodeError:
        written = {}  # the caller says so
    folder = distribution.config.rpartition("/")[0]
    imported = distribution.drop_ins.get(written.get("version", 0)) if "imports" in written else None
    drop_ins = f"{folder}/{imported}/*.toml" if imported else ""
    return _files_text(host, f"{distribution.config} {drop_ins}")


def _files_text(host: Host, files: str) -> str:
    command = f"for file in {files}; do [ -f $file ] && cat $file && echo && echo '{_MARK}'; done; true"
    return str(host.run(command).stdout)


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
