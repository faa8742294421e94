"""Read-only queries about an OpenStack project, each sent once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuform.clients.openstack.api import Api, Json
from gpuform.clients.openstack.cloud import Cloud, answers
from gpuform.clouds.openstack.preflight.state_resources import StateClusters

Connect = Callable[[], Cloud]
"""`gpuform.clients.openstack.cloud.connect` with its arguments bound."""


@dataclass(frozen=True)
class Own:
    """A cluster of the environment's name. ``ours``: the state has it; None if the state is not known."""

    cluster: Json
    node_groups: tuple[Json, ...]
    ours: bool | None

    @property
    def id(self) -> str:
        return str(self.cluster["uuid"])

    @property
    def status(self) -> str:
        return str(self.cluster.get("status"))


class Project:
    """The caller's project. Answers are cached: nothing queried here changes within a preflight."""

    def __init__(self, connect: Connect, environment: str, state: StateClusters | None = None) -> None:
        """``environment`` is the cluster's name; ``state`` is None if it is not known."""
        self._connect, self._environment, self.state = connect, environment, state
        self._lists: dict[str, list[Json]] = {}
        self._answers: dict[str, Json | None] = {}

    @cached_property
    def cloud(self) -> Cloud:
        """Raises InputError without valid settings; see `gpuform.clients.openstack.cloud.connect`."""
        return self._connect()

    @cached_property
    def access(self) -> Any:
        """Keystone's answer to the credentials: keystoneauth's AccessInfo. Raises Failure."""
        with answers("POST keystone/v3/auth/tokens"):
            return self.cloud.session.auth.get_access(self.cloud.session)

    @cached_property
    def api(self) -> Api:
        return Api(self.cloud.connection)

    @property
    def id(self) -> str:
        return str(self.access.project_id)

    def regions(self) -> list[str]:
        every = (one for service in self._catalogue() for one in service["endpoints"])
        return sorted({str(region) for one in every if (region := one.get("region_id") or one.get("region"))})

    def services(self) -> list[str]:
        return sorted({str(service["type"]) for service in self._catalogue() if any(self._here(service))})

    def endpoint(self, types: Collection[str]) -> str:
        """Address of the first service of these types in our region; empty without one."""
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
        """The cluster of the environment's name, preferably the one in the state; None without one."""
        named = [one for one in self._clusters() if one["name"] == self._environment]
        if not named:
            return None
        known = self.state.ids if self.state else frozenset()
        mine = [one for one in named if one["uuid"] in known]
        found = (mine or named)[0]
        groups = self.listed("magnum", f"/clusters/{found['uuid']}/nodegroups", "nodegroups")
        return Own(found, tuple(groups), bool(mine) if self.state else None)

    def unseen(self) -> list[str]:
        """Ids of the state's clusters that Magnum does not list in this project and region."""
        seen = {one["uuid"] for one in self._clusters()}
        return sorted(set(self.state.places) - seen) if self.state else []

    def _clusters(self) -> list[Json]:
        return self.listed("magnum", "/clusters", "clusters")

    def find(self, service: str, path: str) -> Json | None:
        question = f"{service} {path}"
        if question not in self._answers:
            self._answers[question] = self.api.find(service, path)
        return self._answers[question]

    def get(self, service: str, path: str) -> Json:
        """Like ``find``, but empty instead of None."""
        return self.find(service, path) or {}

    def listed(self, service: str, path: str, key: str, **params: Any) -> list[Json]:
        question = f"{service} {path} {sorted(params.items())}"
        if question not in self._lists:
            self._lists[question] = self.api.listed(service, path, key, **params)
        return self._lists[question]

    def flavor(self, named: str) -> Json | None:
        """nova's flavor of this name or id; Magnum accepts both (``attr_validator.validate_flavor``)."""
        return next((one for one in self.flavors() if named in (one["name"], one["id"])), None)

    def flavors(self) -> list[Json]:
        return self.listed("nova", "/flavors/detail", "flavors")

    def template(self, named: str) -> Json | None:
        """Magnum's cluster template of this name or id."""
        templates = self.listed("magnum", "/clustertemplates", "clustertemplates")
        return next((one for one in templates if named in (one["name"], one["uuid"])), None)
