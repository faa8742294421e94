"""Mirrors of registries: other places from which a cluster pulls images and Helm pulls charts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from infra.model.base.errors import InputError
from infra.model.base.fields import Strict, each_once, matching, refusing
from infra.model.base.hostnames import PORT, is_loopback, is_plain_url

# Grammar: github.com/distribution/reference, regexp.go.
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_HOST = rf"(?:localhost|{_LABEL}(?:\.{_LABEL})+|{_LABEL}(?=:))(?::{PORT})?"
_IMAGE = rf"{_PART}(?:/{_PART})*"
REGISTRY = re.compile(rf"{_HOST}(?:/{_PART})*", re.ASCII)
"""Host of a registry, with or without a path."""
_TAG = r"\w[\w.-]{0,127}"
_DIGEST = "(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})"
_REFERENCE = re.compile(rf"((?:{_HOST}/)?{_IMAGE})(?::({_TAG}))?(@{_DIGEST})?", re.ASCII)
_LONGEST_NAME = 255
_MAX_USER_DATA = 8192
_REPOSITORY = re.compile(rf"https://{_HOST}(?:/[\w.~-]+)*", re.ASCII)
_HUB = "docker.io"
_HUB_ALIASES = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "hub.docker.com")
"""Other names of Docker Hub, which no image's name is completed with."""

Mirrors = Mapping[str, str]
"""By host of a registry, or https:// address of a chart repository."""


def _pinned_image(value: str) -> str:
    match = _REFERENCE.fullmatch(value)
    if not match or len(match[1]) > _LONGEST_NAME:
        fact = f"{value!r} is not the name of an image"
        raise InputError("", fact, "write it as registry.example.org/team/name:tag, or with @sha256:...")
    tag = (match[2] or "").lower()
    if not match[3] and (not tag or tag == "latest" or tag.startswith("latest-")):
        raise InputError("", f"image {value!r} is not pinned", "name a version tag or a digest")
    return value


def _source(value: str) -> str:
    if value in _HUB_ALIASES:
        raise InputError("", f"images of Docker Hub have the registry {_HUB}", f"write {_HUB}")
    if not re.fullmatch(_HOST, value) and not _REPOSITORY.fullmatch(value):
        fact = f"{value!r} is neither the host of a registry nor the address of a chart repository"
        raise InputError("", fact, "write it as nvcr.io, or as https://helm.ngc.nvidia.com/nvidia")
    return value


def _chart_repository(value: str) -> str:
    """Charts run with every right in the cluster, so nothing on the way may be able to change them.

    On loopback nothing is on the way, as with a tunnel or a forwarded port.
    """
    if is_plain_url(value, "http") and is_loopback(urlsplit(value).hostname or ""):
        return value
    if value.startswith("http://"):
        fact = "what http transfers can be changed on the way, and the chart gets every right in the cluster"
        raise InputError("", fact, "use https:// or oci://")
    match = re.fullmatch(rf"oci://[^/A-Z]+(?:/{_PART})*/?", value)
    if not is_plain_url(value, "https") and not (match and is_plain_url(value, "oci")):
        remedy = "write it as https://charts.example.org/nvidia, or oci://registry.example.org/charts"
        raise InputError("", f"{value!r} is not the address of a chart repository", remedy)
    return value


def _check_user_data(images: tuple[str, ...]) -> tuple[str, ...]:
    """User data has at most 16 KiB (EC2 user guide, "Run commands at launch"); half of it is the node's."""
    if (size := sum(len(image) + 1 for image in images)) > _MAX_USER_DATA:
        fact = f"the names have {size} bytes, and a node's user data has room for {_MAX_USER_DATA}"
        raise InputError("", fact, "name fewer, those that every pod waits for")
    return images


Source = Annotated[Strict, AfterValidator(_source)]
Mirror = Annotated[
    Strict,
    refusing(
        lambda value: (
            not REGISTRY.fullmatch(value.removeprefix("oci://")) and not _REPOSITORY.fullmatch(value)
        ),
        "{!r} is not a registry",
        "write host and path, as registry.example.org/nvcr; for charts with oci:// or https://",
    ),
]
PinnedImage = Annotated[Strict, AfterValidator(_pinned_image)]
PinnedImages = Annotated[
    tuple[PinnedImage, ...],
    each_once("name each image once", key=lambda name: full_name(name)),
    AfterValidator(_check_user_data),
]
ChartRepository = Annotated[Strict, AfterValidator(_chart_repository)]
Registry = Annotated[
    Strict,
    refusing(
        lambda value: not REGISTRY.fullmatch(value),
        "{!r} is not a registry of images",
        "write its host and a path, as registry.example.org/gpu, without a scheme",
    ),
]
ImageName = Annotated[
    Strict, matching(_IMAGE, "a name of an image", "write it without registry, tag and digest, as driver")
]


def check(mirrors: Mirrors) -> None:
    """Raise InputError if images are mapped to a chart repository, or charts to a registry without scheme."""
    for source, mirror in mirrors.items():
        path, charts = f"registries.{source}", source.startswith("https://")
        if source == mirror:
            raise InputError(path, "is mapped to itself", "leave it out, or name the mirror")
        host = mirror.partition("://")[2] or mirror
        if not charts and host.partition("/")[0] in mirrors:
            fact = f"{mirror} is in a registry that is itself mapped to {mirrors[host.partition('/')[0]]}"
            raise InputError(path, fact, "name a mirror that the cluster can reach")
        if charts and REGISTRY.fullmatch(mirror):
            fact = f"{mirror} does not say how Helm gets charts there"
            raise InputError(path, fact, f"write oci://{mirror}, or its https:// address")
        if not charts and not REGISTRY.fullmatch(mirror):
            fact = f"{mirror} has a scheme, and images are pulled without one"
            raise InputError(path, fact, f"write {mirror.partition('://')[2]}")


def full_name(image: str) -> str:
    """The image's name with its registry, as the kubelet completes it.

    A first part without a dot or a port is not a host, so the image is Docker Hub's
    (github.com/distribution/reference, normalize.go).
    """
    host, slash, path = image.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        if host not in (_HUB, _HUB_ALIASES[0]):
            return image
        image = path
    return f"{_HUB}/{image}" if "/" in image else f"{_HUB}/library/{image}"


def mirrored_image(name: str, mirrors: Mirrors) -> str:
    """The image's name in the mirror of its registry; unchanged if the registry has no mirror."""
    host, _, path = full_name(name).partition("/")
    return f"{mirrors[host]}/{path}" if host in mirrors else name


def mirrored_chart(name: str, repository: str | None, mirrors: Mirrors) -> tuple[str, str | None]:
    """The chart and its repository in the mirror; ``repository`` is None for a chart in a registry."""
    if repository is None:
        return f"oci://{mirrored_image(name.removeprefix('oci://'), mirrors)}", None
    mirror = mirrors.get(repository.removesuffix("/"))
    if mirror is None:
        return name, repository
    return (f"{mirror}/{name}", None) if mirror.startswith("oci://") else (name, mirror)
