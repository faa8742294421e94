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
from infra.model import registries
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.plan import templates

Values = dict[str, Any]
Keys = tuple[str, ...]


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

    at: Keys
    name: str
    tag: str | None
    form: Literal["parts", "host", "whole", "plain", "text"]
    switch: tuple[Keys, bool] | None = None
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


def _at(values: Values, path: Keys, default: Any) -> Any:
    found: Any = values
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return default if found is None else found


def _pinned() -> Iterator[tuple[str, tuple[str, tuple[ChartImage, ...]]]]:
    file = templates.read(Path(__file__).with_name("charts.yaml"))
    for name, chart in templates.complete(file, vars(versions)).items():
        images = chart.get("images", ())
        yield name, (chart["version"], tuple(_image({"form": "whole", **chart, **one}) for one in images))


def _image(row: Values) -> ChartImage:
    switch = None
    if "if" in row or "unless" in row:  # the switch is off, or on, by default
        switch = _path(row.get("if") or row["unless"]), "unless" in row
    return ChartImage(_path(row["at"]), row["name"], row.get("tag"), row["form"], switch, row.get("digest"))


def _path(text: str) -> Keys:
    return tuple(text.split("."))


PINNED: Mapping[str, tuple[str, tuple[ChartImage, ...]]] = dict(_pinned())
"""By chart: the pinned version, and every image that it may start."""


def images(release: ChartRelease) -> Iterator[tuple[ChartImage, str | None]]:
    """The images that a release starts, each with its tag; None if only the chart contains the tag."""
    pinned, found = PINNED[release.short]
    same = release.version is not None and release.version.removeprefix("v") == pinned.removeprefix("v")
    for one in found:
        if one.started(release.values):
            own = one if same else replace(one, tag=None, digest=None)
            yield one, own.tagged(release.values)


def planned(
    env: Environment,
    chart: str,
    repository: str | None,
    version: str,
    place: tuple[str, str],
    values: Values,
    simulated: str = "",
) -> ChartRelease:
    """The release ``place`` (namespace, name), with chart and images from the mirrors.

    On the embedded cluster, that of our own chart ``simulated`` if it is given: stand-ins of its programs.
    """
    if simulated and isinstance(env.cluster, EmbeddedCluster):
        return ChartRelease(f"charts/{simulated}", None, None, *place, values)
    if not env.registries:
        return ChartRelease(chart, repository, version, *place, values)
    values = copy.deepcopy(values)
    for one in PINNED[chart.rpartition("/")[2]][1]:
        name = one.named(values)
        there = env.image(name)
        if there != name and one.started(values):
            one.put(values, there)
    chart, repository = registries.chart(chart, repository, env.registries)
    return ChartRelease(chart, repository, version, *place, values)
