"""Mirrors of registries: other places from which a cluster pulls images and Helm pulls charts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.model.errors import InputError

_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST = r"(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+|[a-z0-9-]+(?=:))(?::\d{1,5})?"
IMAGE = re.compile(rf"{_PART}(?:/{_PART})*")
"""Name of an image without registry, tag and digest."""
REGISTRY = re.compile(rf"{_HOST}(?:/{_PART})*")
"""Host of a registry, with or without a path. Grammar: github.com/distribution/reference, regexp.go."""
_REPOSITORY = re.compile(rf"https://{_HOST}(?:/[\w.~-]+)*")
_HUB = "docker.io"

Mirrors = Mapping[str, str]
"""By host of a registry, or https:// address of a chart repository."""


def _source(value: str) -> str:
    if not re.fullmatch(_HOST, value) and not _REPOSITORY.fullmatch(value):
        fact = f"{value!r} is neither the host of a registry nor the address of a chart repository"
        raise InputError("", fact, "write it as nvcr.io, or as https://helm.ngc.nvidia.com/nvidia")
    return value


def _mirror(value: str) -> str:
    if not REGISTRY.fullmatch(value.removeprefix("oci://")) and not _REPOSITORY.fullmatch(value):
        fact = f"{value!r} is not a registry"
        fix = "write host and path, as registry.example.org/nvcr; for charts with oci:// or https://"
        raise InputError("", fact, fix)
    return value


Source = Annotated[str, Field(strict=True), AfterValidator(_source)]
Mirror = Annotated[str, Field(strict=True), AfterValidator(_mirror)]


def check(mirrors: Mirrors) -> None:
    """Raise InputError if images are mapped to a chart repository, or charts to a registry without scheme."""
    for source, mirror in mirrors.items():
        path, charts = f"registries.{source}", source.startswith("https://")
        if source == mirror:
            raise InputError(path, "is mapped to itself", "leave it out, or name the mirror")
        if charts and REGISTRY.fullmatch(mirror):
            fact = f"{mirror} does not say how Helm gets charts there"
            raise InputError(path, fact, f"write oci://{mirror}, or its https:// address")
        if not charts and not REGISTRY.fullmatch(mirror):
            fact = f"{mirror} has a scheme, and images are pulled without one"
            raise InputError(path, fact, f"write {mirror.partition('://')[2]}")


def full_name(image: str) -> str:
    """The image's name with its registry, as the kubelet completes it.

    A first part without a dot or a port is not a host, so the image is Docker Hub's.
    """
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"{_HUB}/{image}" if slash else f"{_HUB}/library/{image}"


def image(name: str, mirrors: Mirrors) -> str:
    """The image's name in the mirror of its registry; unchanged if the registry has no mirror."""
    host, _, path = full_name(name).partition("/")
    return f"{mirrors[host]}/{path}" if host in mirrors else name


def chart(name: str, repository: str | None, mirrors: Mirrors) -> tuple[str, str | None]:
    """The chart and its repository in the mirror; ``repository`` is None for a chart in a registry."""
    if repository is None:
        return f"oci://{image(name.removeprefix('oci://'), mirrors)}", None
    there = mirrors.get(repository.removesuffix("/"))
    if there is None:
        return name, repository
    return (f"{there}/{name}", None) if there.startswith("oci://") else (name, there)
