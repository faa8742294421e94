"""Helm releases: the images that each chart starts, and mirrors of both.

The table names the images of the pinned chart versions as the charts' values.yaml do, and of sub-charts.
A tag that those files do not contain (a sub-chart's, the cluster's version) is None.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from infra import versions
from infra.model import registries
from infra.model.environment import Environment

Values = dict[str, Any]
Path = tuple[str, ...]


@dataclass(frozen=True)
class ChartRelease:
    """A Helm release; ``chart`` is a path below the project's root if ``version`` is None."""

    chart: str
    repository: str | None
    version: str | None
    namespace: str
    name: str
    values: Values

    @property
    def short(self) -> str:
        """The chart's name without its registry."""
        return self.chart.rpartition("/")[2]


@dataclass(frozen=True)
class ChartImage:
    """One image of a chart; ``at`` is the path of its keys in the values.

    The keys are, by ``form``: parts: repository (registry and folder), image, version; host: registry,
    repository, tag; whole: repository (the whole name), tag; plain: image (the whole name), tag. Of the form
    text there is one key, the last of ``at``, with name and tag. ``switch`` is the value that turns the image
    on, with its default; None if it is always on.
    """

    at: Path
    name: str
    tag: str | None
    form: Literal["parts", "host", "whole", "plain", "text"]
    switch: tuple[Path, bool] | None = None
    digest: str | None = None

    def started(self, values: Values) -> bool:
        """Whether the chart starts it with these values."""
        return self.switch is None or bool(_at(values, self.switch[0], self.switch[1]))

    def named(self, values: Values) -> str:
        """The image's name with these values, without its tag."""
        host, _, path = self.name.partition("/")
        if self.form == "text":
            return str(_at(values, self.at, f"{self.name}:")).rpartition(":")[0]
        found: Values = _at(values, self.at, {})
        if self.form == "parts":
            folder, _, last = self.name.rpartition("/")
            return f"{found.get('repository', folder)}/{found.get('image', last)}"
        if self.form == "host":
            return f"{found.get('registry', host)}/{found.get('repository', path)}"
        return str(found.get("image" if self.form == "plain" else "repository", self.name))

    def tagged(self, values: Values) -> str | None:
        """The tag with these values: theirs, or the chart's own."""
        if self.form == "text":
            return str(_at(values, self.at, "")).rpartition(":")[2] or self.tag
        found: Values = _at(values, self.at, {})
        return found.get("version" if self.form == "parts" else "tag", self.tag)

    def put(self, values: Values, name: str) -> None:
        """Change the values so that the image has this name."""
        text = self.form == "text"
        for part in self.at[:-1] if text else self.at:
            values = values.setdefault(part, {})
        if text:
            values[self.at[-1]] = f"{name}:{self.tag}"
        elif self.form == "host":
            values["registry"], _, values["repository"] = name.partition("/")
        elif self.form == "plain":
            values["image"] = name
        else:
            values["repository"] = name.rpartition("/")[0] if self.form == "parts" else name


def _at(values: Values, path: Path, default: Any) -> Any:
    found: Any = values
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return default if found is None else found


def _operand(at: str, name: str, tag: str, switch: bool | None = None) -> ChartImage:
    """An image of the GPU operator's chart; ``switch`` is the chart's default of ``enabled``."""
    path = tuple(at.split("."))
    on = None if switch is None else ((path[0], "enabled"), switch)
    return ChartImage(path, f"nvcr.io/nvidia/{name}", tag, "parts", on)


def _monitor(at: str, name: str, tag: str | None, switch: str = "", on: bool = True) -> ChartImage:
    """An image of kube-prometheus-stack; ``switch`` is the path of its ``enabled``, ``on`` the default."""
    by = ((*switch.split("."), "enabled"), on) if switch else None
    return ChartImage(tuple(at.split(".")), name, tag, "host", by)


def _nfd(at: str) -> ChartImage:
    name = "registry.k8s.io/nfd/node-feature-discovery"
    tag = "v0.19.0"  # the sub-chart's version in the Chart.yaml of both NVIDIA's charts
    return ChartImage((at, "image"), name, tag, "whole", (("nfd", "enabled"), True))


def _only(name: str, tag: str, *at: str) -> tuple[ChartImage]:
    return (ChartImage(at, name, tag, "whole"),)


def _kserve(at: str, name: str) -> ChartImage:
    return ChartImage(("kserve", at), f"docker.io/kserve/{name}", f"v{versions.KSERVE}", "plain")


def _cert_manager(name: str) -> ChartImage:
    path = ("image",) if name == "controller" else (name, "image")
    return ChartImage(path, f"quay.io/jetstack/cert-manager-{name}", versions.CERT_MANAGER, "whole")


_OPERATOR, _PLUGIN = versions.GPU_OPERATOR, f"v{versions.DEVICE_PLUGIN}"
_PROMETHEUS_OPERATOR = "v0.93.1"  # kube-prometheus-stack's Chart.yaml, appVersion
_QUAY, _CREATES = "quay.io/prometheus-operator", "crds.upgradeJob"
PINNED: Mapping[str, tuple[str, tuple[ChartImage, ...]]] = {
    "gpu-operator": (
        _OPERATOR,
        (
            _operand("operator", "gpu-operator", _OPERATOR),
            _operand("validator", "gpu-operator", _OPERATOR),
            _operand("driver", "driver", versions.GPU_DRIVER, True),
            _operand("driver.manager", "cloud-native/k8s-driver-manager", "v0.12.0", True),
            _operand("toolkit", "k8s/container-toolkit", f"v{versions.CONTAINER_TOOLKIT}", True),
            _operand("devicePlugin", "k8s-device-plugin", _PLUGIN, True),
            _operand("gfd", "k8s-device-plugin", _PLUGIN, True),
            _operand("dcgm", "cloud-native/dcgm", "4.6.0-1-ubuntu24.04", False),
            _operand("dcgmExporter", "k8s/dcgm-exporter", "4.6.0-4.8.3-distroless", True),
            _operand("migManager", "cloud-native/k8s-mig-manager", "v0.15.0", True),
            _operand("nodeStatusExporter", "gpu-operator", _OPERATOR, False),
            _operand("gds", "cloud-native/nvidia-fs", "2.29.4", False),
            _operand("gdrcopy", "cloud-native/gdrdrv", "v2.6", False),
            _nfd("node-feature-discovery"),
        ),
    ),
    "nvidia-device-plugin": (
        versions.DEVICE_PLUGIN,
        (*_only("nvcr.io/nvidia/k8s-device-plugin", _PLUGIN, "image"), _nfd("nfd")),
    ),
    "dcgm-exporter": (
        versions.DCGM_EXPORTER_CHART,
        _only("nvcr.io/nvidia/k8s/dcgm-exporter", "4.5.3-4.8.2-distroless", "image"),
    ),
    "dra-driver-nvidia-gpu": (
        versions.DRA_DRIVER,
        _only("registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu", f"v{versions.DRA_DRIVER}", "image"),
    ),
    "karpenter": (
        versions.KARPENTER,
        (
            ChartImage(
                ("controller", "image"),
                "public.ecr.aws/karpenter/controller",
                versions.KARPENTER,
                "whole",
                digest="sha256:723130949e4cab989461ff07d1be4cd781d63515432494641b33c235f300ae23",
            ),
        ),
    ),
    "karpenter-crd": (versions.KARPENTER, ()),
    "keda": (
        versions.KEDA,
        (
            ChartImage(("image", "keda"), "ghcr.io/kedacore/keda", versions.KEDA, "host"),
            ChartImage(
                ("image", "metricsApiServer"),
                "ghcr.io/kedacore/keda-metrics-apiserver",
                versions.KEDA,
                "host",
            ),
            ChartImage(
                ("image", "webhooks"), "ghcr.io/kedacore/keda-admission-webhooks", versions.KEDA, "host"
            ),
        ),
    ),
    "kueue": (
        versions.KUEUE,
        _only("registry.k8s.io/kueue/kueue", f"v{versions.KUEUE}", "controllerManager", "manager", "image"),
    ),
    "cert-manager": (
        versions.CERT_MANAGER,
        tuple(map(_cert_manager, ("controller", "webhook", "cainjector", "acmesolver", "startupapicheck"))),
    ),
    "kserve-crd": (f"v{versions.KSERVE}", ()),
    "kserve-resources": (
        f"v{versions.KSERVE}",
        (
            _kserve("controller", "kserve-controller"),
            _kserve("storage", "storage-initializer"),
            ChartImage(
                ("kserve", "controller", "rbacProxyImage"),
                "quay.io/brancz/kube-rbac-proxy",
                "v0.18.0",
                "text",
            ),
        ),
    ),
    "aws-efa-k8s-device-plugin": (
        versions.EFA_DEVICE_PLUGIN,
        _only(
            "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin", "v0.5.20", "image"
        ),
    ),
    "kube-prometheus-stack": (
        versions.KUBE_PROMETHEUS_STACK,
        (
            _monitor(f"{_CREATES}.image.busybox", "docker.io/library/busybox", None, _CREATES, False),
            _monitor(f"{_CREATES}.image.kubectl", "registry.k8s.io/kubectl", None, _CREATES, False),
            _monitor(
                "alertmanager.alertmanagerSpec.image",
                "quay.io/prometheus/alertmanager",
                "v0.34.0",
                "alertmanager",
            ),
            _monitor(
                "prometheusOperator.admissionWebhooks.patch.image",
                "ghcr.io/jkroepke/kube-webhook-certgen",
                "1.8.7",
            ),
            _monitor("prometheusOperator.image", f"{_QUAY}/prometheus-operator", _PROMETHEUS_OPERATOR),
            _monitor(
                "prometheusOperator.prometheusConfigReloader.image",
                f"{_QUAY}/prometheus-config-reloader",
                _PROMETHEUS_OPERATOR,
            ),
            _monitor(
                "prometheus.prometheusSpec.image", "quay.io/prometheus/prometheus", "v3.14.0-distroless"
            ),
            _monitor("grafana.image", "docker.io/grafana/grafana", None, "grafana"),
            _monitor("grafana.sidecar.image", "quay.io/kiwigrid/k8s-sidecar", None, "grafana"),
            _monitor(
                "kube-state-metrics.image", "registry.k8s.io/kube-state-metrics/kube-state-metrics", None
            ),
            _monitor("prometheus-node-exporter.image", "quay.io/prometheus/node-exporter", None),
        ),
    ),
}
"""By chart: the pinned version, and every image that it may start."""


def images(release: ChartRelease) -> Iterator[tuple[ChartImage, str | None]]:
    """The images that a release starts, each with its tag; None if only the chart contains the tag."""
    pinned, found = PINNED[release.short]
    same = release.version is not None and release.version.removeprefix("v") == pinned.removeprefix("v")
    for one in found:
        if one.started(release.values):
            own = one if same else replace(one, tag=None, digest=None)
            yield one, own.tagged(release.values)


def mirrored(env: Environment, release: ChartRelease) -> ChartRelease:
    """The release with chart and images from the mirrors; our own charts, for simulated nodes, stay."""
    if release.version is None or not env.registries:
        return release
    chart, repository = registries.chart(release.chart, release.repository, env.registries)
    values = copy.deepcopy(release.values)
    for one in PINNED[release.short][1]:
        name = one.named(values)
        there = env.image(name)
        if there != name and one.started(values):
            one.put(values, there)
    return replace(release, chart=chart, repository=repository, values=values)
