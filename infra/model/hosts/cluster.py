"""The part of the environment for own hosts: how they are reached, what is installed, and its values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra import versions
from infra.facts import DISTRIBUTIONS, IMAGE_SYSTEMS, bad_release
from infra.model.base.errors import InputError, is_file_content
from infra.model.base.fields import (
    NUMBER,
    ClusterModel,
    HostName,
    Model,
    Port,
    Strict,
    each_once,
    listing,
    matching,
    one_of,
    option,
    refusing,
    required,
)
from infra.model.base.hostnames import INTERFACE, is_host, is_plain_url
from infra.model.base.quantities import version_numbers
from infra.model.gpu import drivers
from infra.model.gpu.models import Modules

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


def _distribution(value: Any) -> Any:
    if system := IMAGE_SYSTEMS.get(str(value)):
        raise InputError("", f"{system.name} has no packages that Ansible could install", system.use)
    return value


Distribution = Annotated[
    Literal["kubeadm", "k3s", "rke2"],
    BeforeValidator(_distribution, json_schema_input_type=Literal["kubeadm", "k3s", "rke2"]),
]
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

Runtime = Literal["containerd", "crio"]
NVIDIA_RUNTIME = "nvidia"
"""The RuntimeClass that the operator creates, and the handler that Ansible adds to a host's runtime."""


class Cdi(NamedTuple):
    """The first version with CDI, and the first that has it on by default."""

    first: tuple[int, int]
    first_enabled: tuple[int, int]


CDI: Mapping[Runtime, Cdi] = {"containerd": Cdi((1, 7), (2, 0)), "crio": Cdi((1, 23), (1, 23))}
"""From which version container runtimes give containers CDI devices (Container Device Interface): containerd,
docs/cri/config.md and release notes of 1.7.0 (``enable_cdi``, off) and 2.0.0 (on); CRI-O, release notes of
1.23.0 (on). A runtime without CDI starts the container without its GPU, and reports no error."""

MAJORS: Mapping[Runtime, tuple[int, ...]] = {"containerd": (1, 2), "crio": (1,)}
"""Published major versions (their release pages, 2026-11)."""


def format_version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


_RUNFILE = re.compile(r"NVIDIA-Linux-[a-z0-9_]+-(\d[\d.]*\d)[^/]*\.run", re.ASCII)


class Host(Model):
    """One host; its name is the node's name once it has joined a cluster."""

    name: HostName = required("Name of the host and of its node.")
    address: Address | None = option("Address for ssh; its name if left out.")
    port: Port = option("Port of ssh.", 22)

    @model_validator(mode="after")
    def _check_address(self) -> Host:
        if not is_host(self.ssh_address):
            fact = f"{self.name!r} is also the address for ssh, and no host has it"
            raise InputError("name", fact, "correct it, or add address")
        return self

    @property
    def ssh_address(self) -> str:
        return self.address or self.name


def _host_from_name(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


AnyHost = Annotated[Host, BeforeValidator(_host_from_name, json_schema_input_type=str | Host)]


class Repository(Model):
    """A package repository; its signing key is checked before any package is installed."""

    url: Url = required("Address of the repository.")
    suite: Annotated[
        Strict,
        # sources.list(5): a suite that ends with / is a path, and has no components; others have some.
        matching(
            r"[\w./-]*/|[\w./-]*[\w.-]( [\w./-]+)+",
            "a suite with its components",
            "write it as ./, or as noble main",
        ),
    ] = Field(
        description="For apt, what follows the address: suite and components, or ./ for a flat repository."
    )
    key: FilePath = required("Path of the armored public key, from the project's folder if relative.")
    fingerprint: Fingerprint = required("Fingerprint of that key, 40 hexadecimal digits.")


class Runfile(Model):
    """NVIDIA's installer as one file (source runfile)."""

    url: Url = required("Address of the file.")
    sha256: Sha256 = required("SHA-256 checksum of the file.")


class Driver(Model):
    """NVIDIA's driver: where it comes from, and the version at which it is held."""

    source: Literal["distribution", "nvidia", "runfile", "host"] = required(
        "The distribution's packages, NVIDIA's repository, or NVIDIA's installer; host: the driver and the "
        "fabric manager that the hosts have (as DGX OS), which stay as they are."
    )
    version: DriverVersion = required(
        "Whole version, in quotes; held, so that no upgrade of the system changes it. With source host, the "
        "one that runs."
    )
    modules: Modules | None = option(
        "Kernel modules; what NVIDIA recommends for the GPU and the branch if left out."
    )
    repository: Repository | None = option(
        "Repository with NVIDIA's packages (source nvidia); the hosts' own if left out."
    )
    runfile: Runfile | None = Field(default=None)

    @model_validator(mode="after")
    def _check_source(self) -> Driver:
        if self.repository and self.source != "nvidia":
            fact = f"a driver of source {self.source} does not come from NVIDIA's repository"
            raise InputError("repository", fact, "leave it out, or use source: nvidia")
        if self.runfile and self.source != "runfile":
            fact = f"a driver of source {self.source} does not come from an installer"
            raise InputError("runfile", fact, "leave it out, or use source: runfile")
        if self.runfile and not self.runfile.url.rpartition("/")[2].endswith(".run"):
            fact = f"{self.runfile.url} is not the address of an installer, NAME.run"
            raise InputError("runfile.url", fact, "name the file")
        if self.source == "runfile" and self.runfile is None:
            raise InputError("runfile", "missing", "give url and sha256 of the installer")
        match = _RUNFILE.search(self.runfile.url) if self.runfile else None
        if match and match.group(1) != self.version:
            fact = f"the file has version {match.group(1)}, and version is {self.version}"
            raise InputError("runfile.url", fact, "set both to the same version")
        return self


class Toolkit(Model):
    """NVIDIA's container toolkit on hosts with GPUs."""

    version: ToolkitVersion = option(
        "Whole version, held like the driver's.", versions.HOST_CONTAINER_TOOLKIT
    )
    mode: Literal["cdi", "runtime"] | None = option(
        "How containers get their GPUs: cdi as CDI devices; runtime by a second runtime beside runc, for "
        "pods with RuntimeClass nvidia. If left out, cdi if runtime_version supports it."
    )
    repository: Repository | None = option("Repository with NVIDIA's packages; the hosts' own if left out.")


class HostsCluster(ClusterModel):
    """Own hosts, prepared over ssh; you join them to a cluster with a tool of your choice."""

    kind: Literal["hosts"]
    user: User = option("User for ssh; a user other than root needs sudo without a password.", "root")
    private_key: PrivateKey | None = option("Path of the private key for ssh; ssh's default if left out.")
    known_hosts: LocalPath | None = option("Path of the known_hosts file; ssh's default if left out.")
    control_plane: tuple[AnyHost, ...] = option(
        "Hosts of the control plane that are in no pool: only prepared for Kubernetes.", ()
    )
    distribution: Distribution = option(
        "Kubernetes distribution of the hosts: k3s and rke2 have a containerd of their own; kubeadm stands "
        "for all that use the hosts' containerd or CRI-O.",
        "kubeadm",
    )
    firewall: Literal["ansible", "host"] = option(
        "Who sets the hosts' firewall: ansible replaces ufw and firewalld by own rules; host leaves it as it "
        "is.",
        "ansible",
    )
    runtime: Runtime = option("Container runtime.", "containerd")
    runtime_version: RuntimeVersion | None = option(
        "Its version, in quotes; the oldest on the hosts with GPUs. Decides toolkit.mode."
    )
    toolkit: Toolkit = Field(default_factory=Toolkit)
    driver: Driver | None = option("The driver on hosts with GPUs, unless their pool has its own.")
    cuda: CudaVersion | None = option("CUDA toolkit (nvcc) on hosts with GPUs; none if left out.")
    kubeconfig: FilePath | None = option("Path of the kubeconfig, once the hosts have joined a cluster.")
    context: Context | None = option("Context in it; its current one if left out.")
    acknowledge: Vulnerabilities = option("Accepted vulnerabilities of an older container toolkit.", ())

    @model_validator(mode="after")
    def _check_files(self) -> HostsCluster:
        key_of_path: dict[str, str] = {}
        for key in ("private_key", "known_hosts", "kubeconfig"):
            path = getattr(self, key)
            if path and (first_key := key_of_path.setdefault(path, key)) != key:
                raise InputError(key, f"{path} is also {first_key}", "name two files")
        return self

    @property
    def own_containerd(self) -> bool:
        """Whether the distribution has a containerd of its own, which it configures itself."""
        return self.distribution in DISTRIBUTIONS

    @property
    def first_cdi(self) -> tuple[int, int]:
        """The first version of the runtime with CDI on these hosts; the distributions do not enable it."""
        cdi = CDI[self.runtime]
        return cdi.first_enabled if self.own_containerd else cdi.first

    @property
    def toolkit_mode(self) -> Literal["cdi", "runtime"]:
        """What the toolkit is configured for: as declared, or cdi if the runtime's version supports it.

        Without a version a second runtime, which every containerd supports.
        """
        if self.toolkit.mode:
            return self.toolkit.mode
        version = self.runtime_version
        supported = version is not None and version_numbers(version) >= self.first_cdi
        return "cdi" if supported and self.runtime == "containerd" else "runtime"

    @property
    def by_cdi(self) -> bool:
        """Whether pods get their GPUs as CDI devices; CRI-O supports them in both modes."""
        return self.runtime == "crio" or self.toolkit_mode == "cdi"
