"""Rules over releases: who owns the driver, versions with known holes, pins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from policies import contract
from policies.releases import chart
from policies.rule import Resource, Rule, at, each, table, text

OPERATOR = "gpu-operator"
OPERATOR_FLOOR = (25, 3, 1)
TOOLKIT_FLOOR = (1, 17, 8)
CVE = "CVE-2025-23266"  # a container escape; fixed in toolkit 1.17.8 and operator 25.3.1, NVIDIA's bulletin
TOOLKIT_BAD = ((1, 18, 0),)  # overwrites containerd's imports
# What the images of a family bring: driver and toolkit, and the device plugin.
_IMAGES: Mapping[str, tuple[bool, bool]] = {"AL2023": (True, False), "Bottlerocket": (True, True)}
_EXACT = re.compile(r"^v?\d+\.\d+\.\d+([-+].*)?$")


def _owned(release: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    if chart(release) != OPERATOR:
        return
    images = sorted({family for one in resources for family in _families(one)})
    for family in images:
        host, plugin = _IMAGES[family]
        for owner, there in (("driver", host), ("toolkit", host), ("devicePlugin", plugin)):
            if there and at(release.props, "values", owner, "enabled") is not False:
                yield f"installs the {owner} on nodes whose image ({family}) brings its own"


def _families(resource: Resource) -> Iterator[str]:
    if resource.type == contract.NODE_CLASS:
        family = text(resource.props, "spec", "amiFamily")
    elif resource.type == contract.NODE_GROUP and text(resource.props, "amiType").endswith("_NVIDIA"):
        family = text(resource.props, "amiType").split("_", 1)[0].replace("BOTTLEROCKET", "Bottlerocket")
    else:
        return
    if family in _IMAGES:
        yield family


def _floors(release: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if chart(release) != OPERATOR:
        return
    version = _numbers(text(release.props, "version"))
    if version and version < OPERATOR_FLOOR:
        yield f"operator {at(release.props, 'version')} has {CVE}; the first without it is 25.3.1"
    toolkit = table(release.props, "values", "toolkit")
    numbers = _numbers(text(toolkit, "version"))
    if toolkit.get("enabled") is False or not numbers:
        return
    if numbers < TOOLKIT_FLOOR:
        yield f"container toolkit {toolkit.get('version')} has {CVE}; the first without it is 1.17.8"
    elif numbers in TOOLKIT_BAD:
        yield f"container toolkit {toolkit['version']} overwrites the imports of containerd's configuration"


def _numbers(version: str) -> tuple[int, ...]:
    """``v1.17.8-ubuntu20.04`` as (1, 17, 8); empty for what is no version."""
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in found.groups()) if found else ()


def _pinned(release: Resource, _: Sequence[Resource]) -> Iterator[str]:
    name = text(release.props, "chart")
    if name.startswith((".", "/", "charts/")):
        return  # a folder: its version is the checkout's
    version = text(release.props, "version")
    if not _EXACT.match(version):
        yield f"chart {name} has version {version or 'none'}: another run may install another one"


def _image(node_class: Resource, _: Sequence[Resource]) -> Iterator[str]:
    terms = each(node_class.props, "spec", "amiSelectorTerms")
    if not terms:
        yield "selects no image"
    for term in terms:
        alias = at(term, "alias")
        if alias is not None and (str(alias).endswith("@latest") or "@" not in str(alias)):
            yield f"takes image {alias}: every new one replaces the nodes"
        elif alias is None and at(term, "id") is None:
            yield "selects images by tag or name: every new one replaces the nodes"


RULES = (
    Rule(
        "driver-owner",
        "Driver, toolkit and device plugin come from the image or from the operator, not from both.",
        "high",
        "disable in the operator's values what the image brings",
        (contract.RELEASE,),
        _owned,
        whole=True,
    ),
    Rule(
        "version-floors",
        "Operator and container toolkit are not of a version with a known hole.",
        "critical",
        "operator 25.3.1 or newer; toolkit 1.17.8 or newer, and not 1.18.0",
        (contract.RELEASE,),
        _floors,
    ),
    Rule(
        "chart-pinned",
        "Every chart is of one exact version.",
        "medium",
        "give version: X.Y.Z",
        (contract.RELEASE,),
        _pinned,
    ),
    Rule(
        "image-pinned",
        "Node images are pinned.",
        "high",
        "an AMI id or a dated alias, for example al2023@v20260801",
        (contract.NODE_CLASS,),
        _image,
    ),
)
