"""Every tool: where it comes from, how it says its version, and when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Literal

from gpuform.toolchain.modules import (
    ACTIONLINT,
    ETCD,
    HELM,
    KARPENTER,
    KUBE_STATE_METRICS,
    KUBERNETES,
    KWOK,
    MIG_PARTED,
    NVIDIA_CONFIG,
    NVIDIA_CTK,
    NVML_MOCK,
    OPENSTACK_SDK,
    PROMETHEUS,
    PULUMI,
    PULUMI_KUBERNETES,
    PULUMI_OPENSTACK,
    Module,
)
from infra import versions

When = Literal["up", "gate", "nightly"]
"""What needs a tool first: `make up`, `make test`, `make test-all`. Rehearsals get what they need."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package of Debian and of what is made from it; ``member`` is the binary's path inside it.

    Its version is the distribution's choice: it is used if it lies in the tool's range.
    """

    name: str
    member: str


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One binary.

    ``output`` is the name that ``go build`` gives it. ``ask`` are the arguments that make it print its
    version; a tool that says none, as those of our own, is never looked for on PATH. ``accepts`` is the range
    of versions that may stand on PATH or come from ``debian``: from the first, up to and without the second.
    ``plugin`` is the version of an official Pulumi plugin that is downloaded where that is possible. ``when``
    is the first command that builds it; a program that needs a missing tool later builds it then.
    """

    name: str
    module: Module
    package: str
    output: str
    ask: tuple[str, ...] | None
    accepts: tuple[str, str]
    plugin: str = ""
    debian: Package | None = None
    when: When = "up"


def _exactly(version: str) -> tuple[str, str]:
    major, minor, patch = version.split(".")
    return version, f"{major}.{minor}.{int(patch) + 1}"


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


def _prometheus(name: str) -> Tool:
    """2.42 is Debian 12's; our rules are written for it and for every 3.x alike.

    promtool judges what Prometheus is about to be given.
    """
    return Tool(
        name=name,
        module=PROMETHEUS,
        package=f"{PROMETHEUS.pins}/cmd/{name}",
        output=name,
        ask=("--version",),
        accepts=("2.42.0", "4.0.0"),
        debian=Package(name="prometheus", member=f"usr/bin/{name}"),
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
    Tool(
        name="pulumi-resource-kubernetes",
        module=PULUMI_KUBERNETES,
        package=".",
        output="pulumi-kubernetes",
        ask=None,
        accepts=("4.0.0", "5.0.0"),
        plugin=version("pulumi-kubernetes"),
    ),
    Tool(
        name="pulumi-resource-openstack",
        module=PULUMI_OPENSTACK,
        package=".",
        output="pulumi-openstack",
        ask=None,
        accepts=("5.0.0", "6.0.0"),
        plugin=OPENSTACK_SDK,
        when="nightly",
    ),
    Tool(
        name="pulumi-openstack-offline",
        module=PULUMI_OPENSTACK,
        package="./offline",
        output="offline",
        ask=None,
        accepts=("5.0.0", "6.0.0"),
        when="gate",
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
        when="gate",
    ),
    _prometheus("prometheus"),
    _prometheus("promtool"),
    Tool(
        name="kube-state-metrics",
        module=KUBE_STATE_METRICS,
        package=KUBE_STATE_METRICS.pins,
        output="kube-state-metrics",
        ask=("version",),
        accepts=("2.15.0", "3.0.0"),
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
        when="gate",
    ),
    Tool(
        name="nvidia-mig-parted",
        module=MIG_PARTED,
        package="github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted",
        output="nvidia-mig-parted",
        ask=("--version",),
        accepts=_exactly(MIG_PARTED.version),
        when="gate",
    ),
    Tool(
        name="nvml-mock",
        module=NVML_MOCK,
        package=".",
        output="nvml-mock",
        ask=None,
        accepts=_exactly("0.13.3"),
        when="gate",
    ),
    Tool(
        name="karpenter",
        module=KARPENTER,
        package=f"{KARPENTER.pins}/cmd/controller",
        output="controller",
        ask=None,  # it has no option that prints its version
        accepts=_exactly(KARPENTER.version),
        when="gate",
    ),
    Tool(
        name="actionlint",
        module=ACTIONLINT,
        package="github.com/rhysd/actionlint/cmd/actionlint",
        output="actionlint",
        ask=("-version",),
        accepts=_exactly(ACTIONLINT.version),
        when="gate",
    ),
)

CATALOGUE: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _TOOLS})
MAIN_JOB: tuple[str, ...] = tuple(tool.name for tool in _TOOLS if tool.when == "up")
GATE: tuple[str, ...] = tuple(tool.name for tool in _TOOLS if tool.when != "nightly")
"""What `make up` and `make test` run: `gpuform toolchain build --gate`."""
