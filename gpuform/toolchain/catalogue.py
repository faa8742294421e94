"""Every tool that the main job runs: where it comes from and how it says its version.

The versions are those of ``infra/versions.py``; each Go module under ``toolchain/`` repeats its own in a
go.mod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from infra import versions


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Go module: the folder ``toolchain/<name>`` with its own go.mod and go.sum.

    ``pins`` is the module that its go.mod requires at ``version``. The three sizes are MB of 10^6 bytes: what
    Go downloads and unpacks, what it keeps of the compilation, the binaries. They are the sizes of the files
    that a build of this version used on linux/amd64, rounded up; what two modules share is counted twice.
    ``cgo`` says that a C compiler is needed.
    """

    name: str
    pins: str
    version: str
    download_mb: int
    compile_mb: int
    binaries_mb: int
    ldflags: tuple[str, ...] = ()
    cgo: bool = False


@dataclass(frozen=True, kw_only=True)
class Release:
    """An official release file; ``member`` is the binary's path inside a .tar.gz, None for a bare binary."""

    url: str
    sha256: str
    member: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One binary.

    ``output`` is the name that ``go build`` gives it. ``ask`` are the arguments that make it print its
    version; a tool of our own has none and is never looked for on PATH. ``accepts`` is the range of versions
    that may stand on PATH: from the first, up to and without the second. ``releases`` has a key ``os/arch``.
    ``tests_only`` says that only tests run it, so that `make up` does without it.
    """

    name: str
    module: Module
    package: str
    output: str
    ask: tuple[str, ...] | None
    accepts: tuple[str, str]
    releases: Mapping[str, Release] = field(default_factory=lambda: MappingProxyType({}))
    tests_only: bool = False


def _exactly(version: str) -> tuple[str, str]:
    major, minor, patch = version.split(".")
    return version, f"{major}.{minor}.{int(patch) + 1}"


def _set(package: str, **values: str) -> tuple[str, ...]:
    """Linker arguments that set string variables of a Go package."""
    return tuple(f"-X {package}.{name}={value}" for name, value in values.items())


_K8S_MAJOR, _K8S_MINOR, _ = versions.KUBERNETES.split(".")
# Both packages, as Kubernetes' own build does: the second one ends up in the user agent of every client. The
# commit is left empty, for a module has none; "archive" is Kubernetes' own word for a tree without git.
_K8S_VERSION = tuple(
    flag
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for flag in _set(
        package,
        gitVersion=f"v{versions.KUBERNETES}",
        gitMajor=_K8S_MAJOR,
        gitMinor=_K8S_MINOR,
        gitCommit="",
        gitTreeState="archive",
    )
)

PULUMI = Module(
    name="pulumi",
    pins="github.com/pulumi/pulumi/pkg/v3",
    version=versions.PULUMI,
    download_mb=1400,
    compile_mb=1700,
    binaries_mb=120,
    ldflags=_set("github.com/pulumi/pulumi/sdk/v3/go/common/version", Version=f"v{versions.PULUMI}"),
)
KUBERNETES = Module(
    name="kubernetes",
    pins="k8s.io/kubernetes",
    version=versions.KUBERNETES,
    download_mb=600,
    compile_mb=3100,
    binaries_mb=340,
    ldflags=_K8S_VERSION,
)
ETCD = Module(  # its version is a constant of its source; so is kwok's
    name="etcd",
    pins="go.etcd.io/etcd/server/v3",
    version=versions.ETCD,
    download_mb=300,
    compile_mb=350,
    binaries_mb=30,
)
KWOK = Module(
    name="kwok",
    pins="sigs.k8s.io/kwok",
    version=versions.KWOK,
    download_mb=500,
    compile_mb=1000,
    binaries_mb=130,
)
HELM = Module(
    name="helm",
    pins="helm.sh/helm/v3",
    version=versions.HELM,
    download_mb=500,
    compile_mb=800,
    binaries_mb=70,
    ldflags=(
        *_set("helm.sh/helm/v3/internal/version", version=f"v{versions.HELM}"),
        # What `helm template` takes for the cluster's version when it is told nothing: 1.20 unless set.
        *_set("helm.sh/helm/v3/pkg/chartutil", k8sVersionMajor=_K8S_MAJOR, k8sVersionMinor=_K8S_MINOR),
        *_set("helm.sh/helm/v3/pkg/lint/rules", k8sVersionMajor=_K8S_MAJOR, k8sVersionMinor=_K8S_MINOR),
    ),
)
NVIDIA_CONFIG = Module(
    name="nvidia-config",
    pins="github.com/NVIDIA/k8s-device-plugin",
    # Not versions.DEVICE_PLUGIN, which names the image: this is the newest one to be had as a Go module.
    version="0.19.0",
    download_mb=200,
    compile_mb=200,
    binaries_mb=20,
    cgo=True,  # mig-parted's types are those of go-nvml, which is C
)
NVIDIA_CTK = Module(
    name="nvidia-ctk",
    pins="github.com/NVIDIA/nvidia-container-toolkit",
    # Not versions.CONTAINER_TOOLKIT, which names the operator's image: this is what the hosts of tests get.
    version="1.19.1",
    download_mb=50,
    compile_mb=180,
    binaries_mb=20,
    ldflags=_set("github.com/NVIDIA/nvidia-container-toolkit/internal/info", version="1.19.1"),
    cgo=True,  # go-nvml
)
ACTIONLINT = Module(
    name="actionlint",
    pins="github.com/rhysd/actionlint",
    version="1.7.12",
    download_mb=30,
    compile_mb=70,
    binaries_mb=10,
)


def _kubernetes(name: str, *ask: str) -> Tool:
    return Tool(
        name=name,
        module=KUBERNETES,
        package=f"k8s.io/kubernetes/cmd/{name}",
        output=name,
        ask=ask,
        accepts=_exactly(versions.KUBERNETES),
    )


def _kwok(name: str) -> Tool:
    return Tool(
        name=name,
        module=KWOK,
        package=f"sigs.k8s.io/kwok/cmd/{name}",
        output=name,
        ask=("--version",),
        accepts=_exactly(versions.KWOK),
    )


# Exact versions where the stand-ins, the stages or the tests depend on what that version does; etcd keeps its
# data format within a minor version, helm its command line within a major one.
_TOOLS = (
    Tool(
        name="pulumi",
        module=PULUMI,
        package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
        output="pulumi",
        ask=("version",),
        accepts=_exactly(versions.PULUMI),
    ),
    _kubernetes("kube-apiserver", "--version"),
    _kubernetes("kube-controller-manager", "--version"),
    _kubernetes("kube-scheduler", "--version"),
    _kubernetes("kubectl", "version", "--client"),
    Tool(
        name="etcd",
        module=ETCD,
        package="go.etcd.io/etcd/server/v3",
        output="server",
        ask=("--version",),
        accepts=(versions.ETCD, "3.7.0"),
    ),
    _kwok("kwok"),
    _kwok("kwokctl"),
    Tool(
        name="helm",
        module=HELM,
        package="helm.sh/helm/v3/cmd/helm",
        output="helm",
        ask=("version", "--short"),
        accepts=(versions.HELM, "4.0.0"),
    ),
    Tool(
        name="nvidia-config",
        module=NVIDIA_CONFIG,
        package=".",
        output="nvidia-config",
        ask=None,
        accepts=_exactly(NVIDIA_CONFIG.version),
    ),
    Tool(
        name="nvidia-ctk",
        module=NVIDIA_CTK,
        package="github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk",
        output="nvidia-ctk",
        ask=("--version",),
        accepts=_exactly(NVIDIA_CTK.version),
        tests_only=True,
    ),
)

CATALOGUE: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _TOOLS})
MAIN_JOB: tuple[str, ...] = tuple(tool.name for tool in _TOOLS if not tool.tests_only)

# What only those who work on this project need: got when it is asked for by name, never by `make up`.
ON_REQUEST: Mapping[str, Tool] = MappingProxyType(
    {
        "actionlint": Tool(
            name="actionlint",
            module=ACTIONLINT,
            package="github.com/rhysd/actionlint/cmd/actionlint",
            output="actionlint",
            ask=("-version",),
            accepts=_exactly(ACTIONLINT.version),
        )
    }
)
EVERY: Mapping[str, Tool] = MappingProxyType({**CATALOGUE, **ON_REQUEST})
