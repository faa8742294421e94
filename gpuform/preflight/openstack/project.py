"""What a project of a cloud says of itself: questions that change nothing, each asked once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuform.openstack.api import Api, Json
from gpuform.openstack.cloud import Cloud, answers

Connect = Callable[[], Cloud]
"""As `gpuform.openstack.cloud.connect`, with its arguments given."""


@dataclass(frozen=True)
class Place:
    """Where the state says that a cluster is: ids of a project and of a region; empty for not known."""

    project: str = ""
    region: str = ""


@dataclass(frozen=True)
class Held:
    """What the stack's state has of Magnum: ids of clusters, whether one was being made, and where they are.

    ``places`` has no cluster that was deleted for another one to be made.
    """

    clusters: frozenset[str]
    making: bool
    places: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class Own:
    """A cluster of the environment's name. ``ours``: the state has it; None where that is not known."""

    cluster: Json
    node_groups: tuple[Json, ...]
    ours: bool | None

    @property
    def id(self) -> str:
        """Magnum's."""
        return str(self.cluster["uuid"])

    @property
    def status(self) -> str:
        """Magnum's word."""
        return str(self.cluster.get("status"))


class Project:
    """The caller's project. An answer is kept: nothing that is asked here changes within a preflight."""

    def __init__(self, connect: Connect, environment: str, held: Held | None = None) -> None:
        """Ask nothing yet; ``environment`` is the cluster's name, ``held`` None for a state not known."""
        self._connect, self._environment, self.held = connect, environment, held
        self._lists: dict[str, list[Json]] = {}
        self._answers: dict[str, Json | None] = {}

    @cached_property
    def cloud(self) -> Cloud:
        """Where it is; raises InputError where nobody says how to get there."""
        return self._connect()

    @cached_property
    def access(self) -> Any:
        """What keystone has said to the credentials: keystoneauth's AccessInfo. Raises Failure."""
        with answers("POST keystone/v3/auth/tokens"):
            return self.cloud.session.auth.get_access(self.cloud.session)

    @cached_property
    def api(self) -> Api:
        """The services."""
        return Api(self.cloud.connection)

    @property
    def id(self) -> str:
        """The project's own."""
        return str(self.access.project_id)

    def regions(self) -> list[str]:
        """Those that the catalogue has endpoints in."""
        every = (one for service in self._catalogue() for one in service["endpoints"])
        return sorted({str(region) for one in every if (region := one.get("region_id") or one.get("region"))})

    def services(self) -> list[str]:
        """Types of the services that are in our region."""
        return sorted({str(service["type"]) for service in self._catalogue() if any(self._here(service))})

    def endpoint(self, types: Collection[str]) -> str:
        """Address of the first service of these types in our region; empty for none."""
        found = (url for one in self._catalogue() if one["type"] in types for url in self._here(one))
        return next(found, "")

    def _catalogue(self) -> list[Json]:
        return list(self.access.service_catalog.catalog)

    def _here(self, service: Json) -> Iterator[str]:
        for one in service["endpoints"]:
            region = one.get("region_id") or one.get("region")
            if one.get("interface") == "public" and self.cloud.region in ("", region):
                yield str(one["url"])

    @cached_property
    def own(self) -> Own | None:
        """The cluster of the environment's name, that of the state if there are several; None for none."""
        named = [one for one in self._clusters() if one["name"] == self._environment]
        if not named:
            return None
        known = self.held.clusters if self.held else frozenset()
        mine = [one for one in named if one["uuid"] in known]
        found = (mine or named)[0]
        groups = self.listed("magnum", f"/clusters/{found['uuid']}/nodegroups", "nodegroups")
        return Own(found, tuple(groups), bool(mine) if self.held else None)

    def unseen(self) -> list[str]:
        """Ids of the clusters that the state has somewhere, and that Magnum does not show here."""
        seen = {one["uuid"] for one in self._clusters()}
        return sorted(set(self.held.places) - seen) if self.held else []

    def _clusters(self) -> list[Json]:
        return self.listed("magnum", "/clusters", "clusters")

    def find(self, service: str, path: str) -> Json | None:
        """As ``Api.find``."""
        question = f"{service} {path}"
        if question not in self._answers:
            self._answers[question] = self.api.find(service, path)
        return self._answers[question]

    def get(self, service: str, path: str) -> Json:
        """The same, where there must be an answer."""
        return self.find(service, path) or {}

    def listed(self, service: str, path: str, key: str, **params: Any) -> list[Json]:
        """As ``Api.listed``."""
        question = f"{service} {path} {sorted(params.items())}"
        if question not in self._lists:
            self._lists[question] = self.api.listed(service, path, key, **params)
        return self._lists[question]

    def flavor(self, named: str) -> Json | None:
        """nova's flavor of this name or id; Magnum takes either (``attr_validator.validate_flavor``)."""
        return next((one for one in self.flavors() if named in (one["name"], one["id"])), None)

    def flavors(self) -> list[Json]:
        """All that the project may use."""
        return self.listed("nova", "/flavors/detail", "flavors")

    def template(self, named: str) -> Json | None:
        """Magnum's cluster template of this name or id."""
        templates = self.listed("magnum", "/clustertemplates", "clustertemplates")
        return next((one for one in templates if named in (one["name"], one["uuid"])), None)
