"""Helm releases: the images that each chart starts, and mirrors of both.

``charts.yaml`` names the images.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from infra import versions
from infra.model.base import registries
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.plan import templates

Values = dict[str, Any]
Keys = tuple[str, ...]


@dataclass(frozen=True)
class ChartRelease:
    """A Helm release; ``chart`` is a path below the project's root if ``version`` is None.

    ``skip_crds``: the CRDs in the chart's folder for them belong to another release.
    """

    chart: str
    repository: str | None
    version: str | None
    namespace: str
    name: str
    values: Values
    skip_crds: bool | None = None

    @property
    def short_name(self) -> str:
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

    path: Keys
    name: str
    tag: str | None
    form: Literal["parts", "host", "whole", "plain", "text"]
    switch: tuple[Keys, bool] | None = None
    digest: str | None = None

    def is_started(self, values: Values) -> bool:
        """Whether the chart starts it with these values."""
        return self.switch is None or bool(_value_at(values, self.switch[0], self.switch[1]))

    def name_with(self, values: Values) -> str:
        """The image's name with these values, without its tag."""
        host, _, path = self.name.partition("/")
        if self.form == "text":
            return str(_value_at(values, self.path, f"{self.name}:")).rpartition(":")[0]
        settings: Values = _value_at(values, self.path, {})
        if self.form == "parts":
            folder, _, name = self.name.rpartition("/")
            return f"{settings.get('repository', folder)}/{settings.get('image', name)}"
        if self.form == "host":
            return f"{settings.get('registry', host)}/{settings.get('repository', path)}"
        return str(settings.get("image" if self.form == "plain" else "repository", self.name))

    def tag_with(self, values: Values) -> str | None:
        """The tag with these values: theirs, or the chart's own."""
        if self.form == "text":
            return str(_value_at(values, self.path, "")).rpartition(":")[2] or self.tag
        settings: Values = _value_at(values, self.path, {})
        return settings.get("version" if self.form == "parts" else "tag", self.tag)

    def set_name(self, values: Values, name: str) -> None:
        """Change the values so that the image has this name."""
        is_text = self.form == "text"
        for key in self.path[:-1] if is_text else self.path:
            values = values.setdefault(key, {})
        if is_text:
            values[self.path[-1]] = f"{name}:{self.tag}"
        elif self.form == "host":
            values["registry"], _, values["repository"] = name.partition("/")
        elif self.form == "plain":
            values["image"] = name
        else:
            values["repository"] = name.rpartition("/")[0] if self.form == "parts" else name


def _value_at(values: Values, path: Keys, default: Any) -> Any:
    value: Any = values
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else value


def _pinned() -> Iterator[tuple[str, tuple[str, tuple[ChartImage, ...]]]]:
    file = templates.read(Path(__file__).with_name("charts.yaml"))
    for name, chart in templates.fill(file, vars(versions)).items():
        images = chart.get("images", ())
        yield name, (chart["version"], tuple(_image({"form": "whole", **chart, **row}) for row in images))


def _image(row: Values) -> ChartImage:
    switch = None
    if "if" in row or "unless" in row:  # the switch is off, or on, by default
        switch = _split(row.get("if") or row["unless"]), "unless" in row
    return ChartImage(_split(row["at"]), row["name"], row.get("tag"), row["form"], switch, row.get("digest"))


def _split(text: str) -> Keys:
    return tuple(text.split("."))


PINNED: Mapping[str, tuple[str, tuple[ChartImage, ...]]] = dict(_pinned())
"""By chart: the pinned version, and every image that it may start."""


def images(release: ChartRelease) -> Iterator[tuple[ChartImage, str | None]]:
    """The images that a release starts, each with its tag; None if only the chart contains the tag."""
    version, chart_images = PINNED[release.short_name]
    is_pinned = release.version is not None and release.version.removeprefix("v") == version.removeprefix("v")
    for image in chart_images:
        if image.is_started(release.values):
            known = image if is_pinned else replace(image, tag=None, digest=None)
            yield image, known.tag_with(release.values)


def plan_release(
    env: Environment,
    chart: str,
    repository: str | None,
    version: str,
    target: tuple[str, str],
    values: Values,
    simulated: str = "",
) -> ChartRelease:
    """The release ``target`` (namespace, name), with chart and images from the mirrors.

    On the embedded cluster, that of our own chart ``simulated`` if it is given: stand-ins of its programs.
    """
    if simulated and isinstance(env.cluster, EmbeddedCluster):
        return ChartRelease(f"charts/{simulated}", None, None, *target, values)
    if not env.registries:
        return ChartRelease(chart, repository, version, *target, values)
    values = copy.deepcopy(values)
    for image in PINNED[chart.rpartition("/")[2]][1]:
        name = image.name_with(values)
        mirrored = env.image(name)
        if mirrored != name and image.is_started(values):
            image.set_name(values, mirrored)
    chart, repository = registries.mirrored_chart(chart, repository, env.registries)
    return ChartRelease(chart, repository, version, *target, values)
