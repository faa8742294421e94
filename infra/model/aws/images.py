"""Node images of EKS: one table with what each of them contains, and how a pinned one is named.

Sources: EKS API, values of ``amiType``; AWS's pages on the accelerated AL2023 images (NVIDIA's driver and
container toolkit inside, no device plugin) and on Bottlerocket's NVIDIA variants (device plugin too); the
block devices are those of the images themselves. EKS publishes no AL2 image any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator

from infra.facts import EKS_VERSIONS, bad_release
from infra.model.base.errors import InputError
from infra.model.base.fields import NUMBER, Strict

ImageKey = Literal[
    "al2023",
    "al2023-nvidia",
    "al2023-nvidia-arm64",
    "bottlerocket",
    "bottlerocket-nvidia",
    "bottlerocket-nvidia-arm64",
]
Family = Literal["AL2023", "Bottlerocket"]
Arch = Literal["amd64", "arm64"]

_AMI = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})")
_ALIAS = {
    "AL2023": re.compile(r"al2023@v([0-9]{8})"),
    "Bottlerocket": re.compile(rf"bottlerocket@v?{NUMBER}\.{NUMBER}\.{NUMBER}"),
}
_EXAMPLE = {"AL2023": "al2023@v20261012", "Bottlerocket": "bottlerocket@1.50.0"}


@dataclass(frozen=True)
class Image:
    """One kind of node image; ``data_device``: second disk of images that keep containers on one."""

    key: ImageKey
    family: Family
    arch: Arch
    eks_ami_type: str
    ships_driver: bool
    ships_toolkit: bool
    ships_device_plugin: bool
    root_device: str
    data_device: str | None


def _image(key: ImageKey, family: Family, arch: Arch, ami_type: str, *, gpu: bool) -> Image:
    bottlerocket = family == "Bottlerocket"
    return Image(
        key=key,
        family=family,
        arch=arch,
        eks_ami_type=ami_type,
        ships_driver=gpu,
        ships_toolkit=gpu,
        ships_device_plugin=gpu and bottlerocket,
        root_device="/dev/xvda",
        data_device="/dev/xvdb" if bottlerocket else None,
    )


_ROWS = (
    _image("al2023", "AL2023", "amd64", "AL2023_x86_64_STANDARD", gpu=False),
    _image("al2023-nvidia", "AL2023", "amd64", "AL2023_x86_64_NVIDIA", gpu=True),
    _image("al2023-nvidia-arm64", "AL2023", "arm64", "AL2023_ARM_64_NVIDIA", gpu=True),
    _image("bottlerocket", "Bottlerocket", "amd64", "BOTTLEROCKET_x86_64", gpu=False),
    _image("bottlerocket-nvidia", "Bottlerocket", "amd64", "BOTTLEROCKET_x86_64_NVIDIA", gpu=True),
    _image("bottlerocket-nvidia-arm64", "Bottlerocket", "arm64", "BOTTLEROCKET_ARM_64_NVIDIA", gpu=True),
)

IMAGES: Mapping[ImageKey, Image] = {image.key: image for image in _ROWS}


def _pin(value: str) -> str:
    """The releases of AL2023 are dates (amazon-eks-ami, releases), of 2023 and later."""
    match = _ALIAS["AL2023"].fullmatch(value)
    if match:
        try:
            released = datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC)
        except ValueError:
            raise InputError("", f"{value} names no day", f"write it as {_EXAMPLE['AL2023']}") from None
        if released.year < 2023:
            raise InputError("", f"{value} is older than AL2023", f"write it as {_EXAMPLE['AL2023']}")
    return value


ImagePin = Annotated[Strict, AfterValidator(_pin)]
"""An AMI id or a dated alias; ``check_pin`` compares it with the kind of image that it is given for."""


def check_pin(image: Image, pin: str) -> None:
    """Refuse a pin that does not permanently name one image; the error's path is empty."""
    example = _EXAMPLE[image.family]
    if pin.endswith(("@latest", "@recommended")):
        fact = f"{pin} changes over time, and nodes would then be replaced without an update of yours"
        raise InputError("", fact, f"pin it: an AMI id, or {example}")
    if not _AMI.fullmatch(pin) and not _ALIAS[image.family].fullmatch(pin):
        raise InputError("", f"{pin!r} is not an image of {image.family}", f"give an AMI id, or {example}")


def check_date(kubernetes: str, pin: str) -> None:
    """Refuse a dated alias from a time in which EKS publishes no images of the version, and a bad release."""
    match, support = _ALIAS["AL2023"].fullmatch(pin), EKS_VERSIONS[kubernetes]
    last = support.extended or date.max
    if match and not f"{support.first_images:%Y%m%d}" <= match[1] <= f"{last:%Y%m%d}":
        period = f"from {support.first_images} " + (f"to {last}" if support.extended else "on")
        fact = f"EKS publishes images of Kubernetes {kubernetes} {period}"
        raise InputError("", fact, "write the date of a release in that time")
    if bad := bad_release("al2023", pin.partition("@")[2], kubernetes):
        fact = f"{pin} {bad.why} with Kubernetes {kubernetes}"
        raise InputError("", fact, f"use al2023@{bad.use} or newer")


def is_alias(pin: str) -> bool:
    """Whether the pin is a dated alias, rather than an AMI id."""
    return "@" in pin


def ssm_parameter(image: Image, kubernetes: str, pin: str) -> str:
    """Public SSM parameter that holds the AMI id of a dated alias; not for an AMI id."""
    version, folder = pin.partition("@")[2], _ssm_folder(image, kubernetes)
    if image.family == "Bottlerocket":
        return f"{folder}/{version.removeprefix('v')}/image_id"
    arch, variant = folder.split("/")[-2:]
    return f"{folder}/amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}-{version}/image_id"


def newest_parameter(image: Image, kubernetes: str) -> str:
    """Public SSM parameter with the version of the newest image, for `alias`."""
    newest = "latest/image_version" if image.family == "Bottlerocket" else "recommended/release_version"
    return f"{_ssm_folder(image, kubernetes)}/{newest}"


def alias(image: Image, release: str) -> str | None:
    """The dated alias of a release (1.36.2-20260818, or 1.50.0-1a2b3c4d of Bottlerocket); None for others."""
    version, _, date = release.partition("-")
    alias = f"bottlerocket@{version}" if image.family == "Bottlerocket" else f"al2023@v{date}"
    return alias if _ALIAS[image.family].fullmatch(alias) else None


def _ssm_folder(image: Image, kubernetes: str) -> str:
    """The folder of AWS's public parameters of an image, as EKS and Bottlerocket document it."""
    arch = {"amd64": "x86_64", "arm64": "arm64"}[image.arch]
    if image.family == "Bottlerocket":
        variant = f"aws-k8s-{kubernetes}" + ("-nvidia" if image.ships_driver else "")
        return f"/aws/service/bottlerocket/{variant}/{arch}"
    variant = "nvidia" if image.ships_driver else "standard"
    return f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{arch}/{variant}"
