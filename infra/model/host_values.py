"""Types of the values of own hosts (versions, addresses, paths, keys), each validated on its own."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra import versions
from infra.model import drivers
from infra.model.base import FilePath, listing
from infra.model.errors import InputError

_DRIVER = re.compile(r"\d{3}\.\d{2,3}(\.\d{2})?")
_TOOLKIT = re.compile(r"\d+\.\d+\.\d+")
_RUNTIME = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?")
_CUDA = re.compile(r"\d+\.\d+")
_URL = re.compile(r"https?://[^\s@{}]+")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# Linux takes more letters, at most IFNAMSIZ - 1 = 15 bytes (net/core/dev.c, dev_valid_name).
_INTERFACE = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}")
_OTHER_MACHINES = re.compile(r"aarch64|arm64|sbsa|ppc64le")


def _driver_version(value: str) -> str:
    if not _DRIVER.fullmatch(value):
        raise InputError("", f"{value!r} is not a driver version", "write the whole version, as '580.95.05'")
    if drivers.branch(value) not in drivers.BRANCHES:
        known = [str(branch) for branch in drivers.BRANCHES]
        raise InputError(
            "", f"unknown driver branch {drivers.branch(value)}", listing(known, str(drivers.branch(value)))
        )
    return value


def _toolkit_version(value: str) -> str:
    if not _TOOLKIT.fullmatch(value):
        raise InputError("", f"{value!r} is not a version of the container toolkit", "write it as '1.19.1'")
    if value == drivers.BAD_TOOLKIT:
        raise InputError(
            "",
            f"{value} overwrites the imports of containerd's configuration, and the cluster's are lost",
            f"use {versions.HOST_CONTAINER_TOOLKIT}",
        )
    return value


def _runtime_version(value: str) -> str:
    if not _RUNTIME.fullmatch(value):
        fix = "write the oldest one of the hosts, as '1.7' or '1.7.24'"
        raise InputError("", f"{value!r} is not a version of a container runtime", fix)
    return value


def _cuda_version(value: str) -> str:
    major = value.partition(".")[0]
    if not _CUDA.fullmatch(value):
        raise InputError("", f"{value!r} is not a version of the CUDA toolkit", "write it as '12.2'")
    if int(major) not in drivers.FIRST_BRANCH_OF_CUDA:
        known = [str(one) for one in drivers.FIRST_BRANCH_OF_CUDA]
        raise InputError("", f"unknown CUDA {major}", listing(known, major))
    return value


def _url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise InputError(
            "", "is not a plain http or https address", "write it as https://..., without a user in it"
        )
    machine = _OTHER_MACHINES.search(value)
    if machine:
        raise InputError(
            "",
            f"{machine.group()} packages do not run on the hosts, which are x86_64",
            "name the x86_64 (amd64) ones",
        )
    return value


def _fingerprint(value: str) -> str:
    plain = value.replace(" ", "").upper()
    if not re.fullmatch(r"[0-9A-F]{40}", plain):
        raise InputError("", "is not a key fingerprint", "give all 40 hexadecimal digits")
    return plain


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value.lower()):
        raise InputError("", "is not a SHA-256", "give the 64 hexadecimal digits that `sha256sum` prints")
    return value.lower()


def _own_path(value: str) -> str:
    if not value.startswith(("/", "~/")):
        raise InputError("", f"{value!r} is a relative path", "begin it with / or ~/")
    if any(letter.isspace() or letter in "\"'{}" for letter in value):
        raise InputError(
            "", f"{value!r} cannot be used in ssh's options", "use a path without spaces, quotes and braces"
        )
    return value


def _context(value: str) -> str:
    if not value or any(letter.isspace() or letter in "{}" for letter in value):
        raise InputError(
            "", f"{value!r} is not a context name", "write it as `kubectl config get-contexts` does"
        )
    return value


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise InputError("", f"{value!r} is not a user name", "write it as root or deploy")
    return value


def _address(value: str) -> str:
    """An IP address or a host's name; ssh must not take it for an option.

    ``ipaddress`` accepts any text without a ``%`` as the scope of an IPv6 address.
    """
    address, scoped, scope = value.partition("%")
    if scoped and not _INTERFACE.fullmatch(scope):
        fact = f"the scope of {address!r} is not the name of an interface"
        raise InputError("", fact, "write it as fe80::1%eth0")
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", value):
            raise InputError("", f"{value!r} is not an address", "write it as 10.0.0.12 or a name") from None
    return value


def _acknowledged(value: str) -> str:
    if value not in drivers.TOOLKIT_FIXES:
        raise InputError("", f"unknown vulnerability {value!r}", listing(drivers.TOOLKIT_FIXES, value))
    return value


Url = Annotated[str, Field(strict=True), AfterValidator(_url)]
OwnPath = Annotated[FilePath, AfterValidator(_own_path)]
Acknowledged = Annotated[
    str,
    Field(strict=True, json_schema_extra={"enum": list(drivers.TOOLKIT_FIXES)}),
    AfterValidator(_acknowledged),
]
Address = Annotated[str, Field(strict=True), AfterValidator(_address)]
Context = Annotated[str, Field(strict=True), AfterValidator(_context)]
CudaVersion = Annotated[str, Field(strict=True), AfterValidator(_cuda_version)]
DriverVersion = Annotated[str, Field(strict=True), AfterValidator(_driver_version)]
Fingerprint = Annotated[str, Field(strict=True), AfterValidator(_fingerprint)]
RuntimeVersion = Annotated[str, Field(strict=True), AfterValidator(_runtime_version)]
Sha256 = Annotated[str, Field(strict=True), AfterValidator(_sha256)]
ToolkitVersion = Annotated[str, Field(strict=True), AfterValidator(_toolkit_version)]
User = Annotated[str, Field(strict=True), AfterValidator(_user)]
