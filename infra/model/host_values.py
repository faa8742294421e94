"""Types of the values of own hosts (versions, addresses, paths, keys), each validated on its own."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra import versions
from infra.facts import bad_release
from infra.model import drivers
from infra.model.base import NUMBER, Strict, each_once, listing, matching, one_of, refusing
from infra.model.errors import InputError, is_file_content
from infra.model.hostnames import INTERFACE, is_host, is_plain_url

_OTHER_MACHINES = re.compile(r"aarch64|arm64|sbsa|ppc64le")


def _known_branch(value: str) -> str:
    if drivers.branch(value) not in drivers.BRANCHES:
        known = [str(branch) for branch in drivers.BRANCHES]
        fact = f"unknown driver branch {drivers.branch(value)}"
        raise InputError("", fact, listing(known))
    return value


def _known_cuda(value: str) -> str:
    major = value.partition(".")[0]
    if int(major) not in drivers.FIRST_BRANCH_OF_CUDA:
        known = [str(major_version) for major_version in drivers.FIRST_BRANCH_OF_CUDA]
        raise InputError("", f"unknown CUDA {major}", listing(known, major))
    return value


def _url(value: str) -> str:
    if not is_plain_url(value, "http", "https"):
        fact = "is not a plain http or https address"
        raise InputError("", fact, "write it as https://..., without a user in it")
    machine = _OTHER_MACHINES.search(value)
    if machine:
        fact = f"{machine.group()} packages do not run on the hosts, which are x86_64"
        raise InputError("", fact, "name the x86_64 (amd64) ones")
    return value


def _fingerprint(value: str) -> str:
    digits = value.replace(" ", "").upper()
    if not re.fullmatch(r"[0-9A-F]{40}", digits):
        raise InputError("", "is not a key fingerprint", "give all 40 hexadecimal digits")
    return digits


def _file_path(value: str) -> str:
    """The value may be a pasted kubeconfig, so the message does not repeat it.

    A name has at most 255 bytes, a path less than 4096 (limits.h, NAME_MAX and PATH_MAX).
    """
    names = value.split("/")
    is_too_long = len(value.encode()) >= 4096 or any(len(name.encode()) > 255 for name in names)
    is_no_file = names[-1].strip() in ("", ".", "..") or "://" in value or value.startswith("/dev/")
    if re.match(r"\$\{?[A-Za-z_]", value):
        raise InputError("", f"{value!r}: variables are not expanded", "write it with ~/, or as it is")
    if ":" in value and not is_file_content(value) and "://" not in value:
        raise InputError("", f"{value!r} names several files", "name one")
    if is_file_content(value) or is_too_long or is_no_file:
        raise InputError("", "is not a path", "give the path of the file, not its content")
    return value


def _local_path(value: str) -> str:
    if not value.startswith(("/", "~/")):
        raise InputError("", f"{value!r} is a relative path", "begin it with / or ~/")
    if any(letter.isspace() or letter in "\"'{}" for letter in value):
        fact = f"{value!r} cannot be used in ssh's options"
        raise InputError("", fact, "use a path without spaces, quotes and braces")
    return value


def _address(value: str) -> str:
    """An IP address or a host's name; ssh must not take it for an option.

    ``ipaddress`` accepts any text without a ``%`` as the scope of an IPv6 address.
    """
    address, scoped, scope = value.partition("%")
    if scoped and not INTERFACE.fullmatch(scope):
        fact = f"the scope of {address!r} is not the name of an interface"
        raise InputError("", fact, "write it as fe80::1%eth0")
    if not is_host(value):
        raise InputError("", f"{value!r} is not an address", "write it as 10.0.0.12 or a name")
    return value


def _private_key(value: str) -> str:
    if value.endswith(".pub"):
        raise InputError(
            "", f"{value} is a public key", f"name the private one: {value.removesuffix('.pub')}"
        )
    return value


Url = Annotated[Strict, AfterValidator(_url)]
FilePath = Annotated[Strict, AfterValidator(_file_path)]
LocalPath = Annotated[Strict, AfterValidator(_file_path), AfterValidator(_local_path)]
PrivateKey = Annotated[LocalPath, AfterValidator(_private_key)]
Acknowledged = Annotated[
    Strict,
    Field(json_schema_extra={"enum": list(drivers.TOOLKIT_FIXES)}),
    one_of("vulnerability", drivers.TOOLKIT_FIXES),
]
Vulnerabilities = Annotated[tuple[Acknowledged, ...], each_once("leave it out")]
Address = Annotated[Strict, AfterValidator(_address)]
Context = Annotated[
    Strict, matching(r"[^\s{}]+", "a context name", "write it as `kubectl config get-contexts` does")
]
ContextName = Annotated[
    Strict,
    matching(r"\S|\S[^\x00-\x1f\x7f]*\S", "a context name", "write it as `kubectl config get-contexts` does"),
]
"""Also with blanks, which Ansible's variables and options cannot have."""
CudaVersion = Annotated[
    Strict,
    matching(rf"{NUMBER}\.[0-9]", "a version of the CUDA toolkit", "write it as '12.2'"),
    AfterValidator(_known_cuda),
]
DriverVersion = Annotated[
    Strict,
    matching(r"\d{3}\.\d{2,3}(\.\d{2})?", "a driver version", "write the whole version, as '580.178.04'"),
    AfterValidator(_known_branch),
]
Fingerprint = Annotated[Strict, AfterValidator(_fingerprint)]
RuntimeVersion = Annotated[
    Strict,
    matching(
        rf"[1-9][0-9]{{0,2}}\.{NUMBER}(\.{NUMBER})?",
        "a version of a container runtime",
        "write the oldest one of the hosts, as '1.7' or '1.7.24'",
    ),
]
Sha256 = Annotated[
    Strict,
    refusing(
        lambda value: not re.fullmatch(r"[0-9a-f]{64}", value.lower()),
        "is not a SHA-256",
        "give the 64 hexadecimal digits that `sha256sum` prints",
    ),
    AfterValidator(str.lower),
]
ToolkitVersion = Annotated[
    Strict,
    matching(rf"1\.{NUMBER}\.{NUMBER}", "a version of the container toolkit", "write it as '1.19.1'"),
    refusing(
        lambda value: bad_release("container-toolkit", value) is not None,
        "{} overwrites the imports of containerd's configuration, and the cluster's are lost",
        f"use {versions.HOST_CONTAINER_TOOLKIT}",
    ),
]
User = Annotated[Strict, matching("[a-z_][a-z0-9_-]{0,31}", "a user name", "write it as root or deploy")]
