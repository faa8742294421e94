"""The part of the environment for own hosts: how they are reached, and what is installed on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from infra import versions
from infra.model.base import ClusterModel, Model, Strict, matching, option, required
from infra.model.errors import InputError
from infra.model.gpu import Modules
from infra.model.host_values import (
    Address,
    Context,
    CudaVersion,
    DriverVersion,
    FilePath,
    Fingerprint,
    LocalPath,
    PrivateKey,
    RuntimeVersion,
    Sha256,
    ToolkitVersion,
    Url,
    User,
    Vulnerabilities,
)
from infra.model.hostnames import is_host
from infra.model.quantities import version_numbers
from infra.model.serving import Port
from infra.model.values import HostName

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

    source: Literal["distribution", "nvidia", "runfile"] = required(
        "The distribution's packages, NVIDIA's repository, or NVIDIA's installer."
    )
    version: DriverVersion = required(
        "Whole version, in quotes; held, so that no upgrade of the system changes it."
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
            fact = f"a driver of source {self.source} is a package"
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
    def toolkit_mode(self) -> Literal["cdi", "runtime"]:
        """What the toolkit is configured for: as declared, or cdi if the runtime's version supports it.

        Without a version a second runtime, which every containerd supports.
        """
        if self.toolkit.mode:
            return self.toolkit.mode
        version = self.runtime_version
        supported = version is not None and version_numbers(version) >= CDI[self.runtime].first
        return "cdi" if supported and self.runtime == "containerd" else "runtime"

    @property
    def by_cdi(self) -> bool:
        """Whether pods get their GPUs as CDI devices; CRI-O supports them in both modes."""
        return self.runtime == "crio" or self.toolkit_mode == "cdi"
