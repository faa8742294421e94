"""Reads and writes the TOML of container engines, on the control node.

containerd before 2.1 does not merge a plugin's section from several files: the last file that has the section
wins as a whole, and a `runtimes` table without runc removes runc, so that no pod starts any more (tried on
1.6.20: the file that `nvidia-ctk runtime configure` 1.19.1 writes does that). The drop-in made here repeats
the section in force and always has the default runtime in it.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ansible.errors import AnsibleFilterError

Table = dict[str, Any]


class Format(NamedTuple):
    """A version of containerd's configuration: the section that serves Kubernetes, the first containerd."""

    section: str
    since: tuple[int, int]


# containerd's docs/cri/config.md, and the table of versions in its RELEASES.md. Version 1 has no drop-ins.
FORMATS = {
    2: Format("io.containerd.grpc.v1.cri", (1, 3)),
    3: Format("io.containerd.cri.v1.runtime", (2, 0)),
    4: Format("io.containerd.cri.v1.runtime", (2, 3)),
}
SHIM = "io.containerd.runc.v2"
NVIDIA = "nvidia"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_IMPORTS = re.compile(r"^imports[ \t]*=[ \t]*\[[^\]]*\][^\n]*$", re.MULTILINE)
_VERSION = re.compile(r"^version[ \t]*=[^\n]*$", re.MULTILINE)


def from_toml(text: str) -> Table:
    """The table of a TOML text; AnsibleFilterError if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AnsibleFilterError(f"is not TOML: {error}; correct the file") from error


def _read(file: Mapping[str, str]) -> Table:
    try:
        return from_toml(file["text"])
    except AnsibleFilterError as error:
        raise AnsibleFilterError(f"{file['path']}: {error.message}") from error


def to_toml(table: Mapping[str, Any]) -> str:
    """TOML text of tables, strings, numbers, booleans and lists of them; the same bytes every time."""
    return "\n".join(_lines(table, ())) + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = [f"{_key(name)} = {_value(value)}" for name, value in table.items() if not _is_table(value)]
    lines = [f"[{'.'.join(map(_key, path))}]", *plain] if path and (plain or not table) else plain
    for name, value in table.items():
        if _is_table(value):
            inner = _lines(value, (*path, name))
            lines += ["", *inner] if lines and inner[0] else inner
    return lines


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool | int | float | str):
        return json.dumps(value)
    raise AnsibleFilterError(f"{value!r} cannot be repeated in a drop-in; write it as text or a number")


def containerd_version(files: Sequence[Mapping[str, str]], engine: str) -> int:
    """Version of the configuration: that of the first file, else one that this containerd reads."""
    release = tuple(int(part) for part in engine.split(".")[:2])
    table = _read(files[0]) if files else {}
    if not table:
        return 3 if release >= FORMATS[3].since else 2
    version = table.get("version", 1)
    reason = _unreadable(version, release, engine)
    if reason:
        raise AnsibleFilterError(f"{files[0]['path']}: {reason}")
    return int(version)


def _unreadable(version: Any, release: tuple[int, ...], engine: str) -> str:
    if type(version) is not int:
        return f"its version {version!r} is not a whole number; write it as `version = 3`"
    fact = f"is configuration version {version}, which"
    if version < min(FORMATS):
        return (
            f"{fact} does not support drop-ins; write it in version 2 (`version = 2` and full plugin names)"
        )
    if version not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        fix = f"write it in version {max(FORMATS)}, or use a newer gpuform"
        return f"{fact} is newer than those known here ({known}); {fix}"
    first = FORMATS[version].since
    if release < first:
        since = ".".join(map(str, first))
        able = max(number for number, one in FORMATS.items() if one.since <= release)
        fix = f"write it in version {able}, or install containerd {since}"
        return f"{fact} containerd reads from {since} on, and {engine} is installed; {fix}"
    return ""


def containerd_drop_in(
    files: Sequence[Mapping[str, str]], engine: str, cdi: bool, systemd_cgroup: bool, binary: str
) -> str:
    """The section in force in ``files`` (in the order of reading), with the runtime nvidia in it."""
    version = containerd_version(files, engine)
    name = FORMATS[version].section
    cri: Table = {}
    for file in files:
        found = _read(file).get("plugins", {}).get(name)
        cri = copy.deepcopy(found) if found else cri
    section = cri.setdefault("containerd", {})
    runtimes = section.setdefault("runtimes", {})
    runtimes.pop(NVIDIA, None)
    default = section.get("default_runtime_name", "runc")
    default = section["default_runtime_name"] = "runc" if default == NVIDIA else default
    plain = runtimes.setdefault(default, {"runtime_type": SHIM})
    if systemd_cgroup and default == "runc":
        plain.setdefault("options", {}).setdefault("SystemdCgroup", True)
    runtimes[NVIDIA] = copy.deepcopy(plain)
    runtimes[NVIDIA].setdefault("options", {})["BinaryName"] = binary
    if cdi:
        cri["enable_cdi"] = True
    return to_toml({"version": version, "plugins": {name: cri}})


def containerd_main(files: Sequence[Mapping[str, str]], engine: str, path: str, drop_in: str) -> str:
    """The main file with the drop-in's folder among its imports; every other byte is unchanged."""
    text = files[0]["text"] if files else ""
    table = _read(files[0]) if files else {}
    imports = table.get("imports", [])
    folder = PurePosixPath(path).parent
    if any(fnmatch(drop_in, str(folder / pattern)) for pattern in imports):
        return text
    wanted = [*imports, f"{PurePosixPath(drop_in).parent}/*.toml"]
    line = f"imports = {_value(wanted)}"
    if not table:
        new = f"{text}version = {containerd_version((), engine)}\n{line}\n"
    elif "imports" in table:
        new = _IMPORTS.sub(lambda _: line, text, count=1)
    else:
        new = _VERSION.sub(lambda found: f"{found[0]}\n{line}", text, count=1)
    try:
        after = from_toml(new)
    except AnsibleFilterError:
        after = {}
    if after != {"version": after.get("version"), **table, "imports": wanted}:
        raise AnsibleFilterError(f"{path}: its imports could not be extended; write `{line}` into it")
    return new


def containerd_faults(dump: str, drop_in: str) -> list[str]:
    """Settings of the drop-in that `containerd config dump` lacks, in words; empty if all are in force."""
    effective, declared = from_toml(dump), from_toml(drop_in)
    if any("cri" in name.split(".") for name in effective.get("disabled_plugins", [])):
        return [
            "disabled_plugins switches the CRI plugin off, so Kubernetes cannot use containerd: take it out"
        ]
    plugins = effective.get("plugins", {})
    found = next((one.section for one in reversed(FORMATS.values()) if one.section in plugins), "")
    if not found and effective.get("version", 0) > max(FORMATS):
        known = ", ".join(map(str, FORMATS))
        fact = f"`containerd config dump` has version {effective['version']}"
        fact += f", which is newer than those known here ({known})"
        return [f"{fact}: use a newer gpuform, or an older containerd"]
    declared_in = FORMATS[declared["version"]].section
    section, wanted = plugins.get(found, {}), declared["plugins"][declared_in]
    if found != declared_in:  # containerd 2 migrates older files, and some keys move to other plugins
        wanted = {key: wanted[key] for key in ("containerd", "enable_cdi") if key in wanted}
    return [
        f"{path} has no effect: another file of the imports replaces it"
        for path in _lost(wanted, section, "")
    ]


def _cri(text: str) -> Table:
    """The section that serves Kubernetes; k3s and RKE2 write a part of the older one beside it."""
    plugins = from_toml(text).get("plugins", {})
    return next((plugins[one.section] for one in reversed(FORMATS.values()) if one.section in plugins), {})


def containerd_nvidia(text: str) -> str:
    """Program of the runtime nvidia in a configuration; empty if it has none."""
    runtime = _cri(text).get("containerd", {}).get("runtimes", {}).get(NVIDIA, {})
    return str(runtime.get("options", {}).get("BinaryName", ""))


def containerd_cdi(text: str) -> bool:
    """Whether containers get CDI devices; by default from version 3 on, which containerd 2.0 reads first."""
    return bool(_cri(text).get("enable_cdi", from_toml(text).get("version", 1) >= 3))


def _lost(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str) -> list[str]:
    lost: list[str] = []
    for key, value in wanted.items():
        if _is_table(value) and _is_table(found.get(key)):
            lost += _lost(value, found[key], f"{path}{key}.")
        elif found.get(key) != value:
            lost.append(f"{path}{key}")
    return lost


class FilterModule:
    """The filters that the role's tasks use."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "from_toml": from_toml,
            "containerd_drop_in": containerd_drop_in,
            "containerd_main": containerd_main,
            "containerd_faults": containerd_faults,
            "containerd_nvidia": containerd_nvidia,
            "containerd_cdi": containerd_cdi,
        }
