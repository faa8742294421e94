"""The part of the environment for own hosts: how they are reached, and what is installed on them."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from infra import versions
from infra.model.base import ClusterModel, HostName, Model, Strict, matching
from infra.model.container_runtimes import CDI, Runtime
from infra.model.errors import InputError
from infra.model.gpu import Modules
from infra.model.host_values import (
    Address,
    Context,
    CudaVersion,
    DriverVersion,
    FilePath,
    Fingerprint,
    OwnPath,
    PrivateKey,
    RuntimeVersion,
    Sha256,
    ToolkitVersion,
    Url,
    User,
    Vulnerabilities,
)
from infra.model.places import is_host
from infra.model.quantity import numbers
from infra.model.rollout import Port

_RUNFILE = re.compile(r"NVIDIA-Linux-[a-z0-9_]+-(\d[\d.]*\d)[^/]*\.run", re.ASCII)


class Host(Model):
    """One host; its name is the node's name once it has joined a cluster."""

    name: HostName = Field(description="Name of the host and of its node.")
    address: Address | None = Field(default=None, description="Address for ssh; its name if left out.")
    port: Port = Field(default=22, description="Port of ssh.")

    @model_validator(mode="after")
    def _can_be_reached(self) -> Host:
        if not is_host(self.reached_at):
            fact = f"{self.name!r} is also the address for ssh, and no host has it"
            raise InputError("name", fact, "correct it, or add address")
        return self

    @property
    def reached_at(self) -> str:
        return self.address or self.name


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


AnyHost = Annotated[Host, BeforeValidator(_named, json_schema_input_type=str | Host)]


class Repository(Model):
    """A package repository; its signing key is checked before any package is installed."""

    url: Url = Field(description="Address of the repository.")
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
    key: FilePath = Field(
        description="Path of the armored public key, from the project's folder if relative."
    )
    fingerprint: Fingerprint = Field(description="Fingerprint of that key, 40 hexadecimal digits.")


class Runfile(Model):
    """NVIDIA's installer as one file (source runfile)."""

    url: Url = Field(description="Address of the file.")
    sha256: Sha256 = Field(description="SHA-256 checksum of the file.")


class Driver(Model):
    """NVIDIA's driver: where it comes from, and the version at which it is held."""

    source: Literal["distribution", "nvidia", "runfile"] = Field(
        description="The distribution's packages, NVIDIA's repository, or NVIDIA's installer."
    )
    version: DriverVersion = Field(
        description="Whole version, in quotes; held, so that no upgrade of the system changes it."
    )
    modules: Modules | None = Field(
        default=None,
        description="Kernel modules; what NVIDIA recommends for the GPU and the branch if left out.",
    )
    repository: Repository | None = Field(
        default=None,
        description="Repository with NVIDIA's packages (source nvidia); the hosts' own if left out.",
    )
    runfile: Runfile | None = Field(default=None)

    @model_validator(mode="after")
    def _comes_from_one_place(self) -> Driver:
        if self.repository and self.source != "nvidia":
            raise InputError(
                "repository",
                f"a driver of source {self.source} does not come from NVIDIA's repository",
                "leave it out, or use source: nvidia",
            )
        if self.runfile and self.source != "runfile":
            raise InputError(
                "runfile",
                f"a driver of source {self.source} is a package",
                "leave it out, or use source: runfile",
            )
        if self.runfile and not self.runfile.url.rpartition("/")[2].endswith(".run"):
            fact = f"{self.runfile.url} is not the address of an installer, NAME.run"
            raise InputError("runfile.url", fact, "name the file")
        if self.source == "runfile" and self.runfile is None:
            raise InputError("runfile", "missing", "give url and sha256 of the installer")
        named = _RUNFILE.search(self.runfile.url) if self.runfile else None
        if named and named.group(1) != self.version:
            fact = f"the file has version {named.group(1)}, and version is {self.version}"
            raise InputError("runfile.url", fact, "set both to the same version")
        return self


class Toolkit(Model):
    """NVIDIA's container toolkit on hosts with GPUs."""

    version: ToolkitVersion = Field(
        default=versions.HOST_CONTAINER_TOOLKIT, description="Whole version, held like the driver's."
    )
    mode: Literal["cdi", "runtime"] | None = Field(
        default=None,
        description="How containers get their GPUs: cdi as CDI devices; runtime by a second runtime beside "
        "runc, for pods with RuntimeClass nvidia. If left out, cdi if runtime_version supports it.",
    )
    repository: Repository | None = Field(
        default=None,
        description="Repository with NVIDIA's packages; the hosts' own if left out.",
    )


class HostsCluster(ClusterModel):
    """Own hosts, prepared over ssh; you join them to a cluster with a tool of your choice."""

    created: ClassVar[bool] = False
    kind: Literal["hosts"]
    user: User = Field(
        default="root", description="User for ssh; a user other than root needs sudo without a password."
    )
    private_key: PrivateKey | None = Field(
        default=None, description="Path of the private key for ssh; ssh's default if left out."
    )
    known_hosts: OwnPath | None = Field(
        default=None, description="Path of the known_hosts file; ssh's default if left out."
    )
    control_plane: tuple[AnyHost, ...] = Field(
        default=(),
        description="Hosts of the control plane that are in no pool: only prepared for Kubernetes.",
    )
    runtime: Runtime = Field(default="containerd", description="Container runtime.")
    runtime_version: RuntimeVersion | None = Field(
        default=None,
        description="Its version, in quotes; the oldest on the hosts with GPUs. Decides toolkit.mode.",
    )
    toolkit: Toolkit = Field(default_factory=Toolkit)
    driver: Driver | None = Field(
        default=None, description="The driver on hosts with GPUs, unless their pool has its own."
    )
    cuda: CudaVersion | None = Field(
        default=None, description="CUDA toolkit (nvcc) on hosts with GPUs; none if left out."
    )
    kubeconfig: OwnPath | None = Field(
        default=None, description="Path of the kubeconfig, once the hosts have joined a cluster."
    )
    context: Context | None = Field(default=None, description="Context in it; its current one if left out.")
    acknowledge: Vulnerabilities = Field(
        default=(), description="Accepted vulnerabilities of an older container toolkit."
    )

    @model_validator(mode="after")
    def _has_a_file_for_each(self) -> HostsCluster:
        seen: dict[str, str] = {}
        for key in ("private_key", "known_hosts", "kubeconfig"):
            path = getattr(self, key)
            if path and (other := seen.setdefault(path, key)) != key:
                raise InputError(key, f"{path} is also {other}", "name two files")
        return self

    @property
    def mode(self) -> Literal["cdi", "runtime"]:
        """What the toolkit is configured for: as declared, or cdi if the runtime's version supports it.

        Without a version a second runtime, which every containerd supports.
        """
        if self.toolkit.mode:
            return self.toolkit.mode
        version = self.runtime_version
        supported = version is not None and numbers(version) >= CDI[self.runtime].known
        return "cdi" if supported and self.runtime == "containerd" else "runtime"

    @property
    def by_cdi(self) -> bool:
        """Whether pods get their GPUs as CDI devices; CRI-O supports them in both modes."""
        return self.runtime == "crio" or self.mode == "cdi"
