"""Facts about others' releases and systems: security fixes, driver branches, ends of support, distributions.

The files are tables: a row is one fact, with its ``source`` and the day of the last check. The policies read
them too, so that this package imports nothing of ours.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import yaml

FOLDER = Path(__file__).parent
Product = Literal["container-toolkit", "gpu-operator", "driver", "device-plugin", "dcgm-exporter", "al2023"]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """``date``: the day on which the row was compared with its source."""

    date: datetime.date
    source: str


@dataclass(frozen=True, kw_only=True)
class Fix(Fact):
    """``fixed``: the first release of the product, or of the driver's branch, without ``id``."""

    product: Product
    id: str
    fixed: str


@dataclass(frozen=True, kw_only=True)
class Branch(Fact):
    """A driver branch; ``ends``: the day on which its support ends."""

    branch: int
    ends: datetime.date | None


@dataclass(frozen=True, kw_only=True)
class LastBranch(Fact):
    """The last branch for GPUs below a compute capability, or for EFA with a GPU."""

    branch: int
    below: list[int] | None = None
    efa_with: str | None = None


@dataclass(frozen=True, kw_only=True)
class EksVersion(Fact):
    """A Kubernetes version of EKS; extended support begins when standard support ends."""

    version: str
    released: datetime.date
    standard: datetime.date | None
    extended: datetime.date | None

    @property
    def first_images(self) -> datetime.date:
        """The day before which no node image was published: they come up to a month before the version."""
        return (self.released.replace(day=1) - datetime.timedelta(days=1)).replace(day=1)


@dataclass(frozen=True, kw_only=True)
class BadRelease(Fact):
    """A release that is refused; ``use``: the first one after it that may be used."""

    product: Product
    version: str
    why: str
    use: str
    kubernetes: list[str]


@dataclass(frozen=True, kw_only=True)
class FirstImage(Fact):
    """The first image with a driver for a GPU."""

    gpu: str
    image: str


@dataclass(frozen=True, kw_only=True)
class Distribution(Fact):
    """A Kubernetes distribution with a containerd of its own; the file describes the columns."""

    name: str
    services: list[str]
    config: str
    drop_ins: dict[int, str]
    socket: str
    programs: str
    suffix: str


@dataclass(frozen=True, kw_only=True)
class ImageSystem(Fact):
    """A system of hosts that Ansible cannot prepare; ``use``: what to do instead."""

    id: str
    name: str
    use: str


Row = TypeVar("Row", bound=Fact)


def _read(name: str, kind: type[Row]) -> tuple[Row, ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rows = yaml.load((FOLDER / f"{name}.yaml").read_bytes(), loader)  # noqa: S506  (a SafeLoader)
    return tuple(kind(**row) for row in rows)


FIXES = _read("fixes", Fix)
BRANCHES = {row.branch: row for row in _read("branches", Branch)}
LAST_BRANCHES = _read("last_branches", LastBranch)
EKS_VERSIONS = {row.version: row for row in _read("eks", EksVersion)}
BAD_RELEASES = _read("bad_releases", BadRelease)
FIRST_IMAGES = {row.gpu: row for row in _read("first_images", FirstImage)}
DISTRIBUTIONS = {row.name: row for row in _read("distributions", Distribution)}
IMAGE_SYSTEMS = {row.id: row for row in _read("image_systems", ImageSystem)}
TABLES: Mapping[str, tuple[Fact, ...]] = {
    "fixes": FIXES,
    "branches": tuple(BRANCHES.values()),
    "last_branches": LAST_BRANCHES,
    "eks": tuple(EKS_VERSIONS.values()),
    "bad_releases": BAD_RELEASES,
    "first_images": tuple(FIRST_IMAGES.values()),
    "distributions": tuple(DISTRIBUTIONS.values()),
    "image_systems": tuple(IMAGE_SYSTEMS.values()),
}


def fixes(product: Product) -> dict[str, str]:
    """The first fixed release by vulnerability, oldest first."""
    return {row.id: row.fixed for row in FIXES if row.product == product}


DRIVER_FLOORS = {int(row.fixed.partition(".")[0]): row for row in FIXES if row.product == "driver"}
"""The fix by driver branch."""


def bad_release(product: Product, version: str, kubernetes: str = "") -> BadRelease | None:
    """The entry of a release that must not be used, with this version of Kubernetes if it matters."""
    for row in BAD_RELEASES:
        if (row.product, row.version) == (product, version) and kubernetes in (
            row.kubernetes or [kubernetes]
        ):
            return row
    return None


def distribution_of(kubelet: str) -> Distribution | None:
    """The distribution with a containerd of its own by its kubelet's version, as v1.34.2+rke2r1."""
    return next((row for row in DISTRIBUTIONS.values() if row.suffix in kubelet), None)
