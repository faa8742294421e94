"""Read-only queries about an OpenStack project, each sent once, and the clusters in a stack's state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuform.checkout.paths import Paths
from gpuform.clients.openstack.api import Api, Json
from gpuform.clients.openstack.cloud import Cloud, translate_errors
from gpuform.clouds.openstack.lookups import CLUSTER
from gpuform.engine.pending import operations
from gpuform.stack.preflight.check import local_state

Connect = Callable[[], Cloud]
"""`gpuform.clients.openstack.cloud.connect` with its arguments bound."""


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster of the environment's name; ``is_in_state`` is None if the state is not known."""

    cluster: Json
    node_groups: tuple[Json, ...]
    is_in_state: bool | None

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
        self.list_all = functools.cache(lambda *path, **params: self.api.list_all(*path, **params))
        """A list: service, path, its key in the answer, parameters."""

    @cached_property
    def cloud(self) -> Cloud:
        """Raises InputError without valid settings; see `gpuform.clients.openstack.cloud.connect`."""
        return self._connect()

    @cached_property
    def access(self) -> Any:
        """Keystone's answer to the credentials: keystoneauth's AccessInfo. Raises Failure."""
        with translate_errors("POST keystone/v3/auth/tokens"):
            return self.cloud.session.auth.get_access(self.cloud.session)

    @cached_property
    def api(self) -> Api:
        return Api(self.cloud.connection)

    @property
    def id(self) -> str:
        return str(self.access.project_id)

    def regions(self) -> list[str]:
        services = self.access.service_catalog.get_endpoints_data().values()
        names = {endpoint.region_name for endpoints in services for endpoint in endpoints}
        return sorted(str(name) for name in names if name)

    def services(self) -> list[str]:
        return sorted(name for name, endpoints in self._endpoints.items() if endpoints)

    def endpoint(self, types: Collection[str]) -> str:
        """Address of the first service of these types in our region; empty without one."""
        return next((endpoint.url for name in types for endpoint in self._endpoints.get(name, ())), "")

    @cached_property
    def _endpoints(self) -> Mapping[str, Sequence[Any]]:
        """Public endpoints of our region by type of service, as keystoneauth's EndpointData."""
        catalog, region = self.access.service_catalog, self.cloud.region or None
        return dict(catalog.get_endpoints_data(interface="public", region_name=region))

    @cached_property
    def existing(self) -> ExistingCluster | None:
        """The cluster of the environment's name, preferably the one in the state; None without one."""
        candidates = [cluster for cluster in self._clusters() if cluster["name"] == self._environment]
        if not candidates:
            return None
        state_ids = self.state.ids if self.state else frozenset()
        in_state = [cluster for cluster in candidates if cluster["uuid"] in state_ids]
        selected = (in_state or candidates)[0]
        groups = self.list_all("magnum", f"/clusters/{selected['uuid']}/nodegroups", "nodegroups")
        return ExistingCluster(selected, tuple(groups), bool(in_state) if self.state else None)

    def missing_clusters(self) -> list[str]:
        """Ids of the state's clusters that Magnum does not list in this project and region."""
        listed = {cluster["uuid"] for cluster in self._clusters()}
        return sorted(set(self.state.places) - listed) if self.state else []

    def _clusters(self) -> list[Json]:
        return self.list_all("magnum", "/clusters", "clusters")

    def get(self, service: str, path: str) -> Json:
        """Like ``find``, but empty instead of None."""
        return self.find(service, path) or {}

    def flavor(self, name: str) -> Json | None:
        """nova's flavor of this name or id; Magnum accepts both (``attr_validator.validate_flavor``)."""
        return next((flavor for flavor in self.flavors() if name in (flavor["name"], flavor["id"])), None)

    def flavors(self) -> list[Json]:
        return self.list_all("nova", "/flavors/detail", "flavors")

    def template(self, name: str) -> Json | None:
        """Magnum's cluster template of this name or id."""
        templates = self.list_all("magnum", "/clustertemplates", "clustertemplates")
        return next((one for one in templates if name in (one["name"], one["uuid"])), None)


@dataclass(frozen=True)
class ClusterPlace:
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
    places: Mapping[str, ClusterPlace] = field(default_factory=dict)


def clusters_in_state(paths: Paths, stack: str) -> StateClusters | None:
    """Read the state beside the checkout; None if the state is kept elsewhere. Changes nothing."""
    if (state := local_state(paths, stack)) is None:
        return None
    resources = state["deployment"].get("resources") or ()
    clusters = [resource for resource in resources if resource["type"] == CLUSTER and resource.get("id")]
    current = [cluster for cluster in clusters if not cluster.get("pendingReplacement")]
    places = {str(cluster["id"]): _cluster_place(cluster) for cluster in current}
    ids = frozenset(str(cluster["id"]) for cluster in clusters)
    return StateClusters(ids, any(pending.type == CLUSTER for pending in operations(state)), places)


def is_in_state(paths: Paths, stack: str) -> bool:
    """Whether the state beside the checkout has a cluster."""
    clusters = clusters_in_state(paths, stack)
    return clusters is not None and bool(clusters.ids)


def _cluster_place(resource: Mapping[str, Any]) -> ClusterPlace:
    outputs = resource.get("outputs") or {}
    return ClusterPlace(str(outputs.get("projectId") or ""), str(outputs.get("region") or ""))
