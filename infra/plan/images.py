"""Every image and chart that an environment's cluster pulls: what a mirror must contain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from infra.model.environment import Environment
from infra.model.registries import full_name
from infra.plan import (
    charts,
    device_plugin,
    dra,
    eks,
    gpu_operator,
    health,
    kserve,
    monitoring,
    notebooks,
    pool_keeper,
    queues,
    readiness_gate,
    room,
    scaling,
    scheduler,
    workloads,
)
from infra.plan.charts import ChartRelease

Kind = Literal["chart", "add-on", "image"]
"""In the order in which they are listed."""
SYSTEM = "<system>"
"""In a driver's tag: the operator appends each node's system, as ubuntu24.04."""


@dataclass(frozen=True)
class Pulled:
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
        bare = self.name.removeprefix("oci://")
        return bare.rpartition("/")[0] if bare.startswith("https://") else bare.partition("/")[0]


def pulled(env: Environment) -> list[Pulled]:
    """Charts, add-ons and images, each once; simulated nodes pull none of the images."""
    if not env.has_cluster:
        return []
    published = env.model_copy(update={"registries": {}})
    found: dict[tuple[str, str], Pulled] = {}
    for one, here in zip(_all(published), _all(env), strict=True):
        known = found.get((one.kind, one.name), one)
        by = tuple(dict.fromkeys((*known.used_by, *one.used_by)))
        found[one.kind, one.name] = replace(one, pulled_as=here.name, used_by=by)
    order = get_args(Kind)
    return sorted(found.values(), key=lambda one: (order.index(one.kind), one.name))


def unused(env: Environment, found: Iterable[Pulled]) -> list[str]:
    """Keys of ``registries`` that redirect nothing of ``found``, most likely misspelt."""
    used = {one.source for one in found}
    return [source for source in env.registries if source not in used] if env.has_cluster else []


def releases(env: Environment) -> list[ChartRelease]:
    """Every Helm release of the environment."""
    mode = env.gpu_operator.mode
    found = [
        gpu_operator.release(env) if mode == "operator" else None,
        device_plugin.release(env) if mode == "device_plugin" else None,
        dra.release(env),
        monitoring.release(env),
        device_plugin.exporter_release(env),
        device_plugin.efa_release(env),
        queues.release(env),
        scaling.release(env),
        *kserve.releases(env),
    ]
    if any(env.by_karpenter(pool) for pool in env.pools):
        found += [eks.karpenter_crd_release(env), eks.karpenter_release(env)]
    return [release for release in found if release is not None]


def _all(env: Environment) -> Iterator[Pulled]:
    for release in releases(env):
        if release.version is not None:  # our own charts, for simulated nodes, are in the checkout
            yield from _of(release)
    if env.cluster.kind == "aws":
        for name, version in eks.add_ons(env).items():
            yield _one("add-on", f"{name} {version}", None, "EKS")
    for pool in env.pools:
        for image in pool.on_aws.prepull:
            yield _image(env.image(image), f"prepull of pool {pool.name}")
    made = (
        pool_keeper.manifests(env),
        readiness_gate.manifests(env),
        health.manifests(env),
        scheduler.manifests(env),
        room.manifests(env),
        notebooks.manifests(env),
        workloads.manifests(env),
    )
    for manifest in (one for manifests in made for one in manifests):
        for image in _named(manifest):
            yield _image(image, f"{manifest['kind']} {manifest['metadata']['name']}")


def _of(release: ChartRelease) -> Iterator[Pulled]:
    version = f":{release.version}" if release.chart.startswith("oci://") else f" {release.version}"
    chart = f"{release.repository.removesuffix('/')}/{release.chart}" if release.repository else release.chart
    yield _one("chart", f"{chart}{version}", None, f"release {release.name}")
    for one, tag in charts.images(release):
        name = one.named(release.values)
        if tag is not None and one.at == ("driver",):
            tag = f"{tag}-{SYSTEM}"
        name = name if tag is None else f"{name}:{tag}"
        yield _one("image", name, one.digest, f"chart {release.short} {release.version}")


def _one(kind: Kind, name: str, digest: str | None, by: str) -> Pulled:
    return Pulled(kind, name, name, digest, (by,))


def _image(name: str, by: str) -> Pulled:
    bare, _, digest = full_name(name).partition("@")
    return _one("image", bare, digest or None, by)


def _named(manifest: Any) -> Iterator[str]:
    """Images of containers at any depth of an object."""
    if isinstance(manifest, Mapping):
        for key, value in manifest.items():
            if key in ("containers", "initContainers") and isinstance(value, Iterable):
                yield from (one["image"] for one in value)
            else:
                yield from _named(value)
    elif isinstance(manifest, list | tuple):
        for one in manifest:
            yield from _named(one)
