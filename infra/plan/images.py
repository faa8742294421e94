"""Every image and chart that an environment's cluster pulls: what a mirror must contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from infra.model.base.registries import full_name
from infra.model.environment import Environment
from infra.plan import charts, eks
from infra.plan.charts import ChartRelease
from infra.plan.parts import parts

Kind = Literal["chart", "add-on", "image"]
"""In the order in which they are listed."""
SYSTEM = "<system>"
"""In a driver's tag: the operator appends each node's system, as ubuntu24.04."""


@dataclass(frozen=True)
class Artifact:
    """One image, chart or EKS add-on.

    ``name`` is the publisher's, with tag or version if known; ``pulled_as`` is the name in the mirror, equal
    to ``name`` without one; ``digest`` is None if not pinned; ``used_by`` are the objects that need it.
    """

    kind: Kind
    name: str
    pulled_as: str
    digest: str | None
    used_by: tuple[str, ...]

    @property
    def source(self) -> str:
        """The key of its mirror: the host of its registry, or the address of its chart repository."""
        name = self.name.removeprefix("oci://")
        return name.rpartition("/")[0] if name.startswith("https://") else name.partition("/")[0]


def list_artifacts(env: Environment) -> list[Artifact]:
    """Charts, add-ons and images, each once; simulated nodes pull none of the images."""
    if not env.has_cluster:
        return []
    published = env.model_copy(update={"registries": {}})
    artifacts: dict[tuple[str, str], Artifact] = {}
    for item, mirrored in zip(_all_artifacts(published), _all_artifacts(env), strict=True):
        merged = artifacts.get((item.kind, item.name), item)
        users = tuple(dict.fromkeys((*merged.used_by, *item.used_by)))
        artifacts[item.kind, item.name] = replace(item, pulled_as=mirrored.name, used_by=users)
    order = get_args(Kind)
    return sorted(artifacts.values(), key=lambda item: (order.index(item.kind), item.name))


def unused_registries(env: Environment, artifacts: Iterable[Artifact]) -> list[str]:
    """Keys of ``registries`` that redirect nothing of ``artifacts``, most likely misspelt."""
    used = {artifact.source for artifact in artifacts}
    return [source for source in env.registries if source not in used] if env.has_cluster else []


def releases(env: Environment) -> list[ChartRelease]:
    """Every Helm release of the environment."""
    return [release for part in parts(env).values() for release in part.releases]


def _all_artifacts(env: Environment) -> Iterator[Artifact]:
    planned = parts(env).values()
    for release in (release for part in planned for release in part.releases):
        if release.version is not None:  # our own charts, for simulated nodes, are in the checkout
            yield from _release_artifacts(release)
    if env.cluster.kind == "aws":
        for name, version in eks.add_ons(env).items():
            yield _artifact("add-on", f"{name} {version}", None, "EKS")
    for pool in env.pools:
        for image in pool.aws_settings.prepull:
            yield _image(env.image(image), f"prepull of pool {pool.name}")
    for manifest in (manifest for part in planned for manifest in part.manifests):
        for image in _container_images(manifest):
            yield _image(image, f"{manifest['kind']} {manifest['metadata']['name']}")


def _release_artifacts(release: ChartRelease) -> Iterator[Artifact]:
    version = f":{release.version}" if release.chart.startswith("oci://") else f" {release.version}"
    chart = f"{release.repository.removesuffix('/')}/{release.chart}" if release.repository else release.chart
    yield _artifact("chart", f"{chart}{version}", None, f"release {release.name}")
    for image, tag in charts.images(release):
        name = image.name_with(release.values)
        if tag is not None and image.path == ("driver",):
            tag = f"{tag}-{SYSTEM}"
        name = name if tag is None else f"{name}:{tag}"
        yield _artifact("image", name, image.digest, f"chart {release.short_name} {release.version}")


def _artifact(kind: Kind, name: str, digest: str | None, by: str) -> Artifact:
    return Artifact(kind, name, name, digest, (by,))


def _image(name: str, by: str) -> Artifact:
    name_and_tag, _, digest = full_name(name).partition("@")
    return _artifact("image", name_and_tag, digest or None, by)


def _container_images(manifest: Any) -> Iterator[str]:
    """Images at any depth of an object."""
    if isinstance(manifest, Mapping):
        if {"repository", "image", "version"} <= manifest.keys():  # of an operator's resource
            yield f"{manifest['repository']}/{manifest['image']}:{manifest['version']}"
        for key, value in manifest.items():
            if key in ("containers", "initContainers") and isinstance(value, Iterable):
                yield from (item["image"] for item in value)
            else:
                yield from _container_images(value)
    elif isinstance(manifest, list | tuple):
        for item in manifest:
            yield from _container_images(item)
