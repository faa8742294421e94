"""What only own hosts have: how they are reached, and what is installed on them."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra import versions
from infra.model import drivers
from infra.model.base import HostName, Model, listing
from infra.model.drivers import Modules
from infra.model.errors import InputError

_DRIVER = re.compile(r"\d{3}\.\d{2,3}(\.\d{2})?")
_TOOLKIT = re.compile(r"\d+\.\d+\.\d+")
_CUDA = re.compile(r"\d+\.\d+")
_URL = re.compile(r"https?://[^\s@{}]+")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_OTHER_MACHINES = re.compile(r"aarch64|arm64|sbsa|ppc64le")
_RUNFILE = re.compile(r"NVIDIA-Linux-[a-z0-9_]+-(\d[\d.]*\d)[^/]*\.run")


def _driver_version(value: str) -> str:
    if not _DRIVER.fullmatch(value):
        raise InputError("", f"{value!r} is no driver version", "write it whole, as '580.95.05'")
    if drivers.branch(value) not in drivers.BRANCHES:
        known = [str(branch) for branch in drivers.BRANCHES]
        raise InputError(
            "", f"unknown driver branch {drivers.branch(value)}", listing(known, str(drivers.branch(value)))
        )
    return value


def _toolkit_version(value: str) -> str:
    if not _TOOLKIT.fullmatch(value):
        raise InputError("", f"{value!r} is no version of the container toolkit", "write it as '1.19.1'")
    if value == drivers.BAD_TOOLKIT:
        raise InputError(
            "",
            f"{value} overwrites the imports of containerd's configuration, and the cluster's own is lost",
            f"use {versions.HOST_CONTAINER_TOOLKIT}",
        )
    return value


def _cuda_version(value: str) -> str:
    major = value.partition(".")[0]
    if not _CUDA.fullmatch(value):
        raise InputError("", f"{value!r} is no version of the CUDA toolkit", "write it as '12.2'")
    if int(major) not in drivers.FIRST_BRANCH_OF_CUDA:
        known = [str(one) for one in drivers.FIRST_BRANCH_OF_CUDA]
        raise InputError("", f"unknown CUDA {major}", listing(known, major))
    return value


def _url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise InputError(
            "", "is no plain address of http or https", "write it as https://..., without a user in it"
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
        raise InputError("", "is no fingerprint of a key", "give all 40 hexadecimal digits")
    return plain


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value.lower()):
        raise InputError("", "is no SHA-256", "give the 64 hexadecimal digits that `sha256sum` prints")
    return value.lower()


def _own_path(value: str) -> str:
    if not value.startswith(("/", "~/")):
        raise InputError("", f"{value!r} means another file in every folder", "begin it with / or ~/")
    if any(letter.isspace() or letter in "\"'{}" for letter in value):
        raise InputError(
            "", f"{value!r} cannot stand in ssh's options", "use a path without spaces, quotes and braces"
        )
    return value


def _context(value: str) -> str:
    if not value or any(letter.isspace() or letter in "{}" for letter in value):
        raise InputError(
            "", f"{value!r} is no context's name", "write it as `kubectl config get-contexts` does"
        )
    return value


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise InputError("", f"{value!r} is no user's name", "write it as root or deploy")
    return value


def _address(value: str) -> str:
    """An IP address or a host's name; ssh must not take it for an option."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", value):
            raise InputError("", f"{value!r} is no address", "write it as 10.0.0.12 or a name") from None
    return value


def _acknowledged(value: str) -> str:
    if value not in drivers.TOOLKIT_FIXES:
        raise InputError("", f"unknown vulnerability {value!r}", listing(drivers.TOOLKIT_FIXES, value))
    return value


Url = Annotated[str, Field(strict=True), AfterValidator(_url)]
OwnPath = Annotated[str, Field(strict=True), AfterValidator(_own_path)]
Acknowledged = Annotated[
    str,
    Field(strict=True, json_schema_extra={"enum": list(drivers.TOOLKIT_FIXES)}),
    AfterValidator(_acknowledged),
]


class Host(Model):
    """One machine; its name is the node's name once it has joined a cluster."""

    name: HostName = Field(description="Name of the host and of its node.")
    address: Annotated[str, Field(strict=True), AfterValidator(_address)] | None = Field(
        default=None, description="Where ssh reaches it; its name if left out."
    )
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] = Field(default=22, description="Port of ssh.")

    @property
    def reached_at(self) -> str:
        """The address that ssh is given."""
        return self.address or self.name


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


AnyHost = Annotated[Host, BeforeValidator(_named, json_schema_input_type=str | Host)]


class Repository(Model):
    """A package repository with the key that signs it, checked before anything comes from it."""

    url: Url = Field(description="Where it lies.")
    suite: Annotated[str, Field(strict=True, min_length=1, pattern=r"^[\w./ -]+$")] = Field(
        description="What apt wants after the address: suite and components, or ./ for a flat repository."
    )
    key: Annotated[str, Field(strict=True, min_length=1)] = Field(
        description="Path of the armored public key, from the project's folder if relative."
    )
    fingerprint: Annotated[str, Field(strict=True), AfterValidator(_fingerprint)] = Field(
        description="Fingerprint of that key, 40 hexadecimal digits."
    )


class Runfile(Model):
    """NVIDIA's installer as one file."""

    url: Url = Field(description="Where it is fetched from.")
    sha256: Annotated[str, Field(strict=True), AfterValidator(_sha256)] = Field(
        description="What the file must be."
    )


class Driver(Model):
    """NVIDIA's driver: where it comes from, and which version it stays at until this says another."""

    source: Literal["distribution", "nvidia", "runfile"] = Field(
        description="The distribution's packages, NVIDIA's repository, or NVIDIA's installer."
    )
    version: Annotated[str, Field(strict=True), AfterValidator(_driver_version)] = Field(
        description="Whole version, in quotes; held, so that no upgrade of the system changes it."
    )
    modules: Modules | None = Field(
        default=None,
        description="Kernel modules; what NVIDIA recommends for the GPU and the branch if left out.",
    )
    repository: Repository | None = Field(
        default=None,
        description="Repository with NVIDIA's packages (source nvidia); one that hosts know if left out.",
    )
    runfile: Runfile | None = Field(default=None, description="The installer (source runfile).")

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> Driver:
        if self.repository and self.source != "nvidia":
            raise InputError(
                "repository",
                f"a driver of source {self.source} comes from no repository of NVIDIA's",
                "leave it out, or use source: nvidia",
            )
        if self.runfile and self.source != "runfile":
            raise InputError(
                "runfile",
                f"a driver of source {self.source} is a package",
                "leave it out, or use source: runfile",
            )
        if self.source == "runfile" and self.runfile is None:
            raise InputError("runfile", "missing", "give url and sha256 of the installer")
        named = _RUNFILE.search(self.runfile.url) if self.runfile else None
        if named and named.group(1) != self.version:
            fact = f"the file is of version {named.group(1)}, and version says {self.version}"
            raise InputError("runfile.url", fact, "give both the same")
        return self


class Toolkit(Model):
    """NVIDIA's container toolkit."""

    version: Annotated[str, Field(strict=True), AfterValidator(_toolkit_version)] = Field(
        default=versions.HOST_CONTAINER_TOOLKIT, description="Whole version, held like the driver's."
    )
    mode: Literal["cdi", "runtime"] = Field(
        default="runtime",
        description="How containers get their GPUs: devices by CDI, or a second runtime beside runc.",
    )
    repository: Repository | None = Field(
        default=None, description="Repository with NVIDIA's packages; one that hosts know if left out."
    )


class HostsCluster(Model):
    """Own hosts, prepared over ssh; joining them to a cluster is the business of what you use for that."""

    kind: Literal["hosts"]
    user: Annotated[str, Field(strict=True), AfterValidator(_user)] = Field(
        default="root", description="User of ssh; another one than root needs sudo without a password."
    )
    private_key: OwnPath | None = Field(
        default=None, description="Path of the key of ssh; what ssh itself finds if left out."
    )
    known_hosts: OwnPath | None = Field(
        default=None, description="Path of the file with the hosts' keys; ssh's own if left out."
    )
    control_plane: tuple[AnyHost, ...] = Field(
        default=(),
        description="Hosts of the control plane that are in no pool: only prepared for Kubernetes.",
    )
    runtime: Literal["containerd", "crio"] = Field(default="containerd", description="Container runtime.")
    toolkit: Toolkit = Field(default_factory=Toolkit, description="The container toolkit on hosts with GPUs.")
    driver: Driver | None = Field(
        default=None, description="The driver on hosts with GPUs, where a pool does not say its own."
    )
    cuda: Annotated[str, Field(strict=True), AfterValidator(_cuda_version)] | None = Field(
        default=None, description="CUDA toolkit (nvcc) on hosts with GPUs; none if left out."
    )
    kubeconfig: OwnPath | None = Field(
        default=None, description="Path of the kubeconfig, once the hosts have joined a cluster."
    )
    context: Annotated[str, Field(strict=True), AfterValidator(_context)] | None = Field(
        default=None, description="Context in it; its current one if left out."
    )
    acknowledge: tuple[Acknowledged, ...] = Field(
        default=(), description="Vulnerabilities that an older container toolkit is accepted with."
    )
