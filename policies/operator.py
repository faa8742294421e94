"""Rules over releases: driver ownership, versions with known vulnerabilities, pins, and conflicts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from infra import facts
from policies import contract
from policies.rule import Resource, Rule, chart_of, get, items, mapping, text

OPERATOR = "gpu-operator"
DEVICE_PLUGIN = "nvidia-device-plugin"
DCGM_EXPORTER: Literal["dcgm-exporter"] = "dcgm-exporter"
# Whether a family's images include driver and toolkit, and the device plugin.
_IMAGES: Mapping[str, tuple[bool, bool]] = {"AL2023": (True, False), "Bottlerocket": (True, True)}
_EXACT = re.compile(r"^v?\d+\.\d+\.\d+([-+].*)?$")


def _driver_owner(release: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    if chart_of(release) != OPERATOR:
        return
    images = sorted({family for other in resources for family in _families(other)})
    for family in images:
        host, plugin = _IMAGES[family]
        for owner, included in (("driver", host), ("toolkit", host), ("devicePlugin", plugin)):
            if included and get(release.props, "values", owner, "enabled") is not False:
                yield f"installs the {owner} on nodes with an image ({family}) that includes its own"


def _families(resource: Resource) -> Iterator[str]:
    if resource.type == contract.NODE_CLASS:
        family = text(resource.props, "spec", "amiFamily")
    elif resource.type == contract.NODE_GROUP and text(resource.props, "amiType").endswith("_NVIDIA"):
        family = text(resource.props, "amiType").split("_", 1)[0].replace("BOTTLEROCKET", "Bottlerocket")
    else:
        return
    if family in _IMAGES:
        yield family


def _version_floors(release: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if chart_of(release) != OPERATOR:
        return
    acknowledged = text(release.props, "values", "daemonsets", "annotations", contract.ACKNOWLEDGED)
    accepted = {cve_id.strip() for cve_id in acknowledged.split(",")}
    toolkit = _installed(release, "toolkit")
    yield from _vulnerable("operator", "gpu-operator", text(release.props, "version"), accepted)
    yield from _vulnerable("container toolkit", "container-toolkit", toolkit, accepted)
    if bad := facts.bad_release("container-toolkit", ".".join(map(str, _numbers(toolkit)))):
        yield f"container toolkit {toolkit} {bad.why}"


def _installed(release: Resource, operand: str) -> str:
    """The declared version of an operand; empty if the operator installs none, or its own."""
    values = mapping(release.props, "values", operand)
    return "" if values.get("enabled") is False else text(values, "version")


def _vulnerable(
    name: str, product: facts.Product, version: str, accepted: Collection[str] = ()
) -> Iterator[str]:
    numbers = _numbers(version)
    for cve, fixed in facts.fixes(product).items():
        if cve not in accepted and numbers and numbers < _numbers(fixed):
            yield f"{name} {version} has {cve}; the first without it is {fixed}"


def _security_fixes(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    chart, version = chart_of(resource), text(resource.props, "version")
    if chart == DCGM_EXPORTER:
        yield from _vulnerable(chart, DCGM_EXPORTER, version)
    if chart == DEVICE_PLUGIN and text(resource.props, "values", "deviceListStrategy").startswith("cdi-"):
        yield from _vulnerable("device plugin", "device-plugin", version)
    drivers = [_installed(resource, "driver")] if chart == OPERATOR else _host_drivers(resource)
    for driver in sorted(set(drivers)):
        fix = facts.DRIVER_FLOORS.get(next(iter(_numbers(driver)), 0))
        if fix and _numbers(driver) < _numbers(fix.fixed):
            yield f"driver {driver} has vulnerabilities (NVIDIA {fix.id}); {fix.fixed} is the first without"


def _host_drivers(resource: Resource) -> Iterator[str]:
    """The drivers of own hosts, in their inventory."""
    if resource.type == contract.HOSTS:
        hosts = mapping(json.loads(text(resource.props, "inventory") or "{}"), "_meta", "hostvars")
        yield from (text(variables, "nvidia_driver_version") for variables in hosts.values())


def _one_stack(release: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if chart_of(release) != OPERATOR:
        return
    by_claim = get(release.props, "values", "gpuCluster", "deployCR") is True
    if by_claim and get(release.props, "values", "clusterPolicy", "deployCR") is not False:
        yield "creates a ClusterPolicy and a GPUCluster, and the operator works with only one of them"


def _one_device_plugin(release: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    if chart_of(release) != DEVICE_PLUGIN:
        return
    for other in resources:
        if chart_of(other) == OPERATOR and get(other.props, "values", "devicePlugin", "enabled") is not False:
            yield f"allocates the same GPUs as the device plugin of {other.name}"
    if "Bottlerocket" in {family for node_pool in resources for family in _families(node_pool)}:
        yield "allocates the same GPUs as the device plugin in the node image (Bottlerocket)"


def _numbers(version: str) -> tuple[int, ...]:
    """``v1.17.8-ubuntu20.04`` as (1, 17, 8); empty if it is not a version."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in match.groups()) if match else ()


def _chart_pinned(release: Resource, _: Sequence[Resource]) -> Iterator[str]:
    name = text(release.props, "chart")
    if name.startswith((".", "/", "charts/")):
        return  # a folder: its version is the checkout's
    version = text(release.props, "version")
    if not _EXACT.match(version):
        yield f"chart {name} has version {version or 'none'}: another run may install another one"


def _image_pinned(node_class: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    terms = items(node_class.props, "spec", "amiSelectorTerms")
    if not terms:
        yield "selects no image"
    for term in terms:
        alias = get(term, "alias")
        if alias is not None and (str(alias).endswith("@latest") or "@" not in str(alias)):
            yield f"uses image {alias}: every new release replaces the nodes"
        elif alias is None and get(term, "id") is None:
            yield "selects images by tag or name: every new image replaces the nodes"
        for cluster in resources:
            kubernetes = text(cluster.props, "version") if cluster.type == contract.CLUSTER else ""
            if bad := facts.bad_release("al2023", str(alias).removeprefix("al2023@"), kubernetes):
                yield f"uses image {alias}, which {bad.why} with Kubernetes {kubernetes}"


RULES = (
    Rule(
        "driver-owner",
        "Driver, toolkit and device plugin come from the image or from the operator, not from both.",
        "high",
        "disable in the operator's values what the image includes",
        (contract.RELEASE,),
        _driver_owner,
        whole_stack=True,
    ),
    Rule(
        "version-floors",
        "Operator and container toolkit have no version with a known vulnerability.",
        "critical",
        f"operator {list(facts.fixes('gpu-operator').values())[-1]} or newer; toolkit "
        f"{list(facts.fixes('container-toolkit').values())[-1]} or newer; or gpu_operator.acknowledge",
        (contract.RELEASE,),
        _version_floors,
    ),
    Rule(
        "security-fixes",
        "Driver, device plugin and exporter have the security fixes of their branch.",
        "low",
        "a version with the fixes: " + ", ".join(fix.fixed for fix in facts.DRIVER_FLOORS.values()),
        (contract.RELEASE, contract.HOSTS),
        _security_fixes,
    ),
    Rule(
        "operator-one-stack",
        "The operator runs by a ClusterPolicy or by a GPUCluster, not by both.",
        "high",
        "set clusterPolicy.deployCR or gpuCluster.deployCR to false",
        (contract.RELEASE,),
        _one_stack,
    ),
    Rule(
        "one-device-plugin",
        "A node's GPUs are allocated by one device plugin.",
        "high",
        "install the operator, or the device plugin's chart on nodes that have none",
        (contract.RELEASE,),
        _one_device_plugin,
        whole_stack=True,
    ),
    Rule(
        "chart-pinned",
        "Every chart has one exact version.",
        "medium",
        "give version: X.Y.Z",
        (contract.RELEASE,),
        _chart_pinned,
    ),
    Rule(
        "image-pinned",
        "Node images are pinned, and to no release with a known fault.",
        "high",
        "an AMI id or a dated alias, for example al2023@v20261012",
        (contract.NODE_CLASS,),
        _image_pinned,
        whole_stack=True,
    ),
)
