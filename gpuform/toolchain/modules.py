"""The Go modules that the tools are built from: what each pins, how large it is, what its linker is told.

The versions are those of ``infra/versions.py``; each module under ``toolchain/`` repeats its own in a go.mod.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from infra import versions


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Go module: the folder ``toolchain/<name>`` with its own go.mod and go.sum.

    ``pins`` is the module that its go.mod requires at ``version``. The three sizes are MB of 10^6 bytes: what
    Go downloads and unpacks, what it keeps of the compilation, the binaries. They are the sizes of the files
    that a build of this version used on linux/amd64, rounded up; what two modules share is counted twice.
    ``cgo`` says that a C compiler is needed, ``tags`` are Go's build tags. ``called`` is the version by which
    the tools go where the module's is numbered in another way.
    """

    name: str
    pins: str
    version: str
    download_mb: int
    compile_mb: int
    binaries_mb: int
    ldflags: tuple[str, ...] = ()
    cgo: bool = False
    tags: tuple[str, ...] = ()
    called: str = ""

    @property
    def says(self) -> str:
        """The version that its tools are known by."""
        return self.called or self.version


def _set(package: str, **values: str) -> tuple[str, ...]:
    """Linker arguments that set string variables of a Go package."""
    return tuple(f"-X {package}.{name}={value}" for name, value in values.items())


def _installed(package: str, lowest: str) -> str:
    """The version of a package that need not be there; ``lowest`` is the one that pyproject.toml asks for."""
    try:
        return version(package)
    except PackageNotFoundError:
        return lowest


OPENSTACK_SDK = _installed("pulumi-openstack", "5.5.3")

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
# With a stub of the Go SDK: the real one has 66 packages, of which the provider needs six names.
PULUMI_KUBERNETES = Module(
    name="pulumi-kubernetes",
    pins="github.com/pulumi/pulumi-kubernetes/provider/v4",
    version=versions.PULUMI_KUBERNETES_MODULE,
    download_mb=650,
    compile_mb=1600,
    binaries_mb=90,
    # The engine warns of a plugin that is older than the program's SDK.
    ldflags=_set(
        "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version", Version=version("pulumi-kubernetes")
    ),
)
PULUMI_OPENSTACK = Module(
    name="pulumi-openstack",
    pins="github.com/terraform-provider-openstack/terraform-provider-openstack/v3",
    version=versions.OPENSTACK_PROVIDER,
    download_mb=600,
    compile_mb=600,
    binaries_mb=120,
    ldflags=_set("gpuform.io/toolchain/pulumi-openstack/magnum", version=OPENSTACK_SDK),
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
# Without its web page, which no Go module holds, and with one of its thirty ways to find targets: the others
# bring the clients of every cloud.
PROMETHEUS = Module(
    name="prometheus",
    pins="github.com/prometheus/prometheus",
    version=versions.PROMETHEUS_MODULE,
    download_mb=1100,
    compile_mb=1300,
    binaries_mb=130,
    ldflags=_set("github.com/prometheus/common/version", Version=versions.PROMETHEUS),
    tags=("netgo", "remove_all_sd", "enable_kubernetes_sd"),
    called=versions.PROMETHEUS,
)
KUBE_STATE_METRICS = Module(
    name="kube-state-metrics",
    pins="k8s.io/kube-state-metrics/v2",
    version=versions.KUBE_STATE_METRICS,
    download_mb=350,
    compile_mb=1200,
    binaries_mb=70,
    ldflags=_set("github.com/prometheus/common/version", Version=f"v{versions.KUBE_STATE_METRICS}"),
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
MIG_PARTED = Module(
    name="mig-parted",
    pins="github.com/NVIDIA/mig-parted",
    # Of those that the operator's release might have (0.15.0) or that came before it, the newest to be had.
    version="0.13.1",
    download_mb=40,
    compile_mb=110,
    binaries_mb=10,
    ldflags=_set("github.com/NVIDIA/mig-parted/internal/info", version="0.13.1"),
    cgo=True,  # go-nvml
)
NVML_MOCK = Module(
    name="nvml-mock",
    pins="github.com/NVIDIA/go-nvml",
    version="0.13.3-1",
    download_mb=10,
    compile_mb=90,
    binaries_mb=5,
    cgo=True,  # go-nvml's mocks stand beside its C
)
KARPENTER = Module(
    name="karpenter",
    pins="github.com/aws/karpenter-provider-aws",
    version=versions.KARPENTER_MODULE,
    download_mb=350,
    compile_mb=1600,
    binaries_mb=180,
    # Its controllers for AWS and for kwok are both started from the same core, which has the version.
    ldflags=_set("sigs.k8s.io/karpenter/pkg/operator", Version=versions.KARPENTER_MODULE),
)
ACTIONLINT = Module(
    name="actionlint",
    pins="github.com/rhysd/actionlint",
    version="1.7.12",
    download_mb=30,
    compile_mb=70,
    binaries_mb=10,
)
