"""Every tool: the Go module that it is built from, how it prints its version, and when it is needed.

The versions are those of ``infra/versions.py``; each folder ``toolchain/<module>`` repeats its own in go.mod.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

from infra import versions
from lab.toolchain.tool import Module, Tool


def _linker_flags(package: str, **values: str) -> tuple[str, ...]:
    return tuple(f"-X {package}.{name}={value}" for name, value in values.items())


def _installed_version(package: str, lowest: str) -> str:
    """Version of an optional Python package; ``lowest``, as in pyproject.toml, if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return lowest


OPENSTACK_SDK = _installed_version("pulumi-openstack", "5.5.3")
_MAJOR, _MINOR, _ = versions.KUBERNETES.split(".")

# With a stub of the OpenAPI parser: 22 packages that take a quarter of the build, for `pulumi api` alone.
_PULUMI = Module(
    name="pulumi",
    module_path="github.com/pulumi/pulumi/pkg/v3",
    version=versions.PULUMI,
    mb=2490,
    ldflags=_linker_flags("github.com/pulumi/pulumi/sdk/v3/go/common/version", Version=f"v{versions.PULUMI}"),
)
# With a stub of the Go SDK: the real one has 66 packages, of which the provider needs six names.
_PULUMI_KUBERNETES = Module(
    name="pulumi-kubernetes",
    module_path="github.com/pulumi/pulumi-kubernetes/provider/v4",
    version=versions.PULUMI_KUBERNETES_MODULE,
    mb=1530,
    # The engine warns of a plugin that is older than the program's SDK.
    ldflags=_linker_flags(
        "github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version", Version=version("pulumi-kubernetes")
    ),
)
_PULUMI_OPENSTACK = Module(
    name="pulumi-openstack",
    module_path="github.com/terraform-provider-openstack/terraform-provider-openstack/v3",
    version=versions.OPENSTACK_PROVIDER,
    mb=1320,
    ldflags=_linker_flags("gpuform.io/toolchain/pulumi-openstack/magnum", version=OPENSTACK_SDK),
)
KUBERNETES = Module(
    name="kubernetes",
    module_path="k8s.io/kubernetes",
    version=versions.KUBERNETES,
    mb=2330,
    # Both packages, as Kubernetes' own build does: the second one ends up in the user agent of every client.
    # The commit is empty: a module has none. "archive" is Kubernetes' word for a tree without git.
    ldflags=tuple(
        flag
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for flag in _linker_flags(
            package,
            gitVersion=f"v{versions.KUBERNETES}",
            gitMajor=_MAJOR,
            gitMinor=_MINOR,
            gitCommit="",
            gitTreeState="archive",
        )
    ),
)
# The versions of etcd and kwok are constants of their sources.
_ETCD = Module(name="etcd", module_path="go.etcd.io/etcd/server/v3", version=versions.ETCD, mb=170)
_KWOK = Module(name="kwok", module_path="sigs.k8s.io/kwok", version=versions.KWOK, mb=650)
_HELM = Module(
    name="helm",
    module_path="helm.sh/helm/v3",
    version=versions.HELM,
    mb=1370,
    ldflags=(
        *_linker_flags("helm.sh/helm/v3/internal/version", version=f"v{versions.HELM}"),
        # Default cluster version of `helm template`; 1.20 unless set.
        *_linker_flags("helm.sh/helm/v3/pkg/chartutil", k8sVersionMajor=_MAJOR, k8sVersionMinor=_MINOR),
        *_linker_flags("helm.sh/helm/v3/pkg/lint/rules", k8sVersionMajor=_MAJOR, k8sVersionMinor=_MINOR),
    ),
)
# Without its web UI, which no Go module contains, and with one of its thirty service discoveries: the others
# pull in the clients of every cloud. Its own build also has the tag netgo, which changes nothing without cgo,
# but makes Go compile all that uses the package net once more.
_PROMETHEUS = Module(
    name="prometheus",
    module_path="github.com/prometheus/prometheus",
    version=versions.PROMETHEUS_MODULE,
    mb=940,
    ldflags=_linker_flags("github.com/prometheus/common/version", Version=versions.PROMETHEUS),
    tags=("remove_all_sd", "enable_kubernetes_sd"),
    tool_version=versions.PROMETHEUS,
)
_KUBE_STATE_METRICS = Module(
    name="kube-state-metrics",
    module_path="k8s.io/kube-state-metrics/v2",
    version=versions.KUBE_STATE_METRICS,
    mb=110,
    ldflags=_linker_flags("github.com/prometheus/common/version", Version=f"v{versions.KUBE_STATE_METRICS}"),
)
# The four modules below need cgo, for go-nvml.
NVIDIA_CONFIG = Module(
    name="nvidia-config",
    module_path="github.com/NVIDIA/k8s-device-plugin",
    # Not versions.DEVICE_PLUGIN, which names the image: this is the newest one published as a Go module.
    version="0.19.0",
    mb=420,
    cgo=True,
)
NVIDIA_CTK = Module(
    name="nvidia-ctk",
    module_path="github.com/NVIDIA/nvidia-container-toolkit",
    # Not versions.CONTAINER_TOOLKIT, which names the operator's image: the hosts of the tests get this one.
    version="1.19.1",
    mb=250,
    ldflags=_linker_flags("github.com/NVIDIA/nvidia-container-toolkit/internal/info", version="1.19.1"),
    cgo=True,
)
_MIG_PARTED = Module(
    name="mig-parted",
    module_path="github.com/NVIDIA/mig-parted",
    # The newest Go module up to 0.15.0, the version that the operator's release might have.
    version="0.13.1",
    mb=160,
    ldflags=_linker_flags("github.com/NVIDIA/mig-parted/internal/info", version="0.13.1"),
    cgo=True,
)
_NVML_MOCK = Module(
    name="nvml-mock", module_path="github.com/NVIDIA/go-nvml", version="0.13.3-1", mb=105, cgo=True
)
_KARPENTER = Module(
    name="karpenter",
    module_path="github.com/aws/karpenter-provider-aws",
    version=versions.KARPENTER,
    mb=2130,
    # Its controllers for AWS and for kwok share the core package that has the version.
    ldflags=_linker_flags("sigs.k8s.io/karpenter/pkg/operator", Version=versions.KARPENTER),
)
_KEDA = Module(
    name="keda",
    module_path="github.com/kedacore/keda/v2",
    version=versions.KEDA,
    mb=4900,
    ldflags=_linker_flags("github.com/kedacore/keda/v2/version", Version=versions.KEDA),
)
_KUEUE = Module(
    name="kueue",
    module_path="sigs.k8s.io/kueue",
    version=versions.KUEUE,
    mb=3110,
    ldflags=(
        *_linker_flags("sigs.k8s.io/kueue/pkg/version", GitVersion=f"v{versions.KUEUE}"),
        # The certificate of its aggregated API: not "/visibility", where only root and a container may write.
        *_linker_flags("sigs.k8s.io/kueue/pkg/visibility", certDir="visibility"),
    ),
)
# versions.GPU_OPERATOR names the official image, which is used where its registry can be reached. The module
# proxy serves only this commit, of 25.3.4.
GPU_OPERATOR = Module(
    name="gpu-operator",
    module_path="github.com/NVIDIA/gpu-operator",
    version="0.0.0-20250917190837-d73a0086a6ba",
    mb=1400,
    ldflags=_linker_flags("github.com/NVIDIA/gpu-operator/internal/info", version="v25.3.4"),
    tool_version="25.3.4",
)
_NFD = Module(
    name="nfd",
    module_path="sigs.k8s.io/node-feature-discovery",
    version="0.19.0",
    mb=1000,
    ldflags=_linker_flags("sigs.k8s.io/node-feature-discovery/pkg/version", version="v0.19.0"),
)
_KSERVE = Module(name="kserve", module_path="github.com/kserve/kserve", version=versions.KSERVE, mb=3180)
_CERT_MANAGER = Module(
    name="cert-manager",
    module_path="github.com/cert-manager/cert-manager",
    version=versions.CERT_MANAGER.removeprefix("v"),
    mb=1780,
    ldflags=_linker_flags("github.com/cert-manager/cert-manager/pkg/util", AppVersion=versions.CERT_MANAGER),
)
_ACTIONLINT = Module(name="actionlint", module_path="github.com/rhysd/actionlint", version="1.7.12", mb=110)

# Exact versions where the stages or the tests depend on a version's behaviour; etcd keeps its data format
# within a minor version, helm its command line within a major one.
_TOOLS = (
    Tool("pulumi", _PULUMI, "/cmd/pulumi", ("version",)),
    Tool("pulumi-resource-kubernetes", _PULUMI_KUBERNETES, ".", plugin=version("pulumi-kubernetes")),
    Tool("pulumi-resource-openstack", _PULUMI_OPENSTACK, ".", plugin=OPENSTACK_SDK, needed_by="nightly"),
    Tool("pulumi-openstack-offline", _PULUMI_OPENSTACK, "./offline", needed_by="gate"),
    Tool("kube-apiserver", KUBERNETES, "/cmd/kube-apiserver", ("--version",)),
    Tool("kube-controller-manager", KUBERNETES, "/cmd/kube-controller-manager", ("--version",)),
    Tool("kube-scheduler", KUBERNETES, "/cmd/kube-scheduler", ("--version",)),
    Tool("kubectl", KUBERNETES, "/cmd/kubectl", ("version", "--client")),
    Tool("etcd", _ETCD, "", ("--version",), (versions.ETCD, "3.7.0")),
    Tool("kwok", _KWOK, "/cmd/kwok", ("--version",)),
    Tool("kwokctl", _KWOK, "/cmd/kwokctl", ("--version",)),
    Tool("helm", _HELM, "/cmd/helm", ("version", "--short"), (versions.HELM, "4.0.0"), needed_by="gate"),
    # Never one from PATH: Debian's has no Kubernetes discovery.
    Tool("prometheus", _PROMETHEUS, "/cmd/prometheus"),
    Tool("promtool", _PROMETHEUS, "/cmd/promtool"),
    Tool("kube-state-metrics", _KUBE_STATE_METRICS, "", ("version",), ("2.15.0", "3.0.0")),
    Tool("nvidia-config", NVIDIA_CONFIG, "."),
    Tool("nvidia-ctk", NVIDIA_CTK, "/cmd/nvidia-ctk", ("--version",), needed_by="gate"),
    Tool("nvidia-mig-parted", _MIG_PARTED, "/cmd/nvidia-mig-parted", ("--version",), needed_by="gate"),
    Tool("nvml-mock", _NVML_MOCK, ".", needed_by="gate"),
    Tool("karpenter", _KARPENTER, "/cmd/controller", needed_by="gate"),
    Tool("keda", _KEDA, "/cmd/operator", needed_by="nightly"),
    Tool("keda-adapter", _KEDA, "/cmd/adapter", needed_by="nightly"),
    Tool("kserve", _KSERVE, "/cmd/manager", needed_by="nightly"),
    Tool("cert-manager", _CERT_MANAGER, "./controller", needed_by="nightly"),
    Tool("cert-manager-cainjector", _CERT_MANAGER, "./cainjector", needed_by="nightly"),
    Tool("cert-manager-webhook", _CERT_MANAGER, "./webhook", needed_by="nightly"),
    Tool("kueue", _KUEUE, "/cmd/kueue", needed_by="gate"),
    Tool(
        "gpu-operator",
        GPU_OPERATOR,
        "/cmd/gpu-operator",
        needed_by="nightly",
        official=versions.GPU_OPERATOR.removeprefix("v"),
        files=(  # as its image has them [docker/Dockerfile], and the chart
            ("assets", "opt/gpu-operator"),
            ("manifests", "opt/gpu-operator/manifests"),
            ("deployments/gpu-operator", "chart"),
        ),
        relocated=b"/opt/gpu-operator",
    ),
    Tool(
        "nfd-master",
        _NFD,
        "/cmd/nfd-master",
        needed_by="nightly",
        files=(("deployment/helm/node-feature-discovery", "chart"),),
    ),
    Tool("nfd-gc", _NFD, "/cmd/nfd-gc", needed_by="nightly"),
    Tool("actionlint", _ACTIONLINT, "/cmd/actionlint", ("-version",), needed_by="gate"),
)

CATALOGUE: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _TOOLS})
MAIN_JOB: tuple[str, ...] = tuple(tool.name for tool in _TOOLS if tool.needed_by == "up")
GATE: tuple[str, ...] = tuple(tool.name for tool in _TOOLS if tool.needed_by != "nightly")
"""What `make up` and `make test` run: `gpuform toolchain build --gate`."""
