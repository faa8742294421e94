"""Read-only queries about an OpenStack project, each sent once, and the clusters in a stack's state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuform.checkout.paths import Paths
from gpuform.clients.openstack.api import Api, Json
from gpuform.clients.openstack.cloud import Cloud, answers
from gpuform.clouds.openstack.lookups import CLUSTER
from gpuform.engine.pending import operations
from gpuform.stack.preflight.check import state_here

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
        self.find = functools.cache(lambda service, path: self.api.find(service, path))
        """An object by path; None if it does not exist."""
        self.listed = functools.cache(lambda *where, **given: self.api.listed(*where, **given))
        """A list: service, path, its key in the answer, parameters."""

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
        every = self.access.service_catalog.get_endpoints_data().values()
        return sorted({str(one.region_name) for found in every for one in found if one.region_name})

    def services(self) -> list[str]:
        return sorted(name for name, found in self._endpoints.items() if found)

    def endpoint(self, types: Collection[str]) -> str:
        """Address of the first service of these types in our region; empty without one."""
        return next((one.url for name in types for one in self._endpoints.get(name, ())), "")

    @cached_property
    def _endpoints(self) -> Mapping[str, Sequence[Any]]:
        """Public endpoints of our region by type of service, as keystoneauth's EndpointData."""
        return dict(
            self.access.service_catalog.get_endpoints_data(
                interface="public", region_name=self.cloud.region or None
            )
        )

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

    def get(self, service: str, path: str) -> Json:
        """Like ``find``, but empty instead of None."""
        return self.find(service, path) or {}

    def flavor(self, named: str) -> Json | None:
        """nova's flavor of this name or id; Magnum accepts both (``attr_validator.validate_flavor``)."""
        return next((one for one in self.flavors() if named in (one["name"], one["id"])), None)

    def flavors(self) -> list[Json]:
        return self.listed("nova", "/flavors/detail", "flavors")

    def template(self, named: str) -> Json | None:
        """Magnum's cluster template of this name or id."""
        templates = self.listed("magnum", "/clustertemplates", "clustertemplates")
        return next((one for one in templates if named in (one["name"], one["uuid"])), None)


@dataclass(frozen=True)
class Place:
    """A cluster's project id and region id according to the state; empty if not known."""

    project: str = ""
    region: str = ""


@dataclass(frozen=True)
class StateClusters:
    """Ids of the clusters in the state, whether a create was interrupted, and where the clusters are.

    ``places`` omits clusters that were deleted for their replacement.
    """

    ids: frozenset[str]
    creating: bool
    places: Mapping[str, Place] = field(default_factory=dict)


def clusters_in_state(paths: Paths, stack: str) -> StateClusters | None:
    """Read the state beside the checkout; None if the state is kept elsewhere. Changes nothing."""
    if (state := state_here(paths, stack)) is None:
        return None
    resources = state["deployment"].get("resources") or ()
    clusters = [one for one in resources if one["type"] == CLUSTER and one.get("id")]
    places = {str(one["id"]): _place(one) for one in clusters if not one.get("pendingReplacement")}
    ids = frozenset(str(one["id"]) for one in clusters)
    return StateClusters(ids, any(one.type == CLUSTER for one in operations(state)), places)


def in_state(paths: Paths, stack: str) -> bool:
    """Whether the state beside the checkout has a cluster."""
    found = clusters_in_state(paths, stack)
    return found is not None and bool(found.ids)


def _place(resource: Mapping[str, Any]) -> Place:
    outputs = resource.get("outputs") or {}
    return Place(str(outputs.get("projectId") or ""), str(outputs.get("region") or ""))
