"""How a Magnum cluster is destroyed: Magnum deletes it unless another resource blocks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.clients.openstack.api import Api, Json
from gpuform.clients.openstack.blockers import blockers, of_cluster
from gpuform.clients.openstack.cloud import Refused, connect
from gpuform.clouds.openstack.lookups import CLUSTER
from gpuform.clouds.openstack.recover import require_credentials_of
from gpuform.stack.destroy.state import Known
from gpuform.stack.destroy.teardown import Leftover, Made, Step, Sweeper, Teardown
from gpuform.stack.recover import state as states
from infra.model.openstack import OpenstackCluster

_CONFLICT = 409
_OFFLINE = "offline: OpenStack is not queried for leftovers"

OF_MAGNUM: tuple[Step, ...] = (
    Step("workloads", "deletes the workloads that the stack declares", 300),
    Step("load balancers", "deletes Services of type LoadBalancer and Ingresses, of every namespace", 600),
    Step("volumes", "keeps volumes with data at OpenStack; with --purge, deletes claims and volumes", 600),
    Step("leftovers", "deletes load balancers of Services that are gone, by the cluster's id", 600),
    Step("cluster", "the engine deletes the platform, node groups, the cluster, its template if it is ours"),
)
"""Magnum removes the nodes itself: no controller has to be alive for that."""


@dataclass(frozen=True)
class Magnum(Made):
    """The Magnum cluster in the state; ``project`` is its OpenStack project."""

    project: str
    region: str
    id: str


def magnum(known: Known) -> Magnum | None:
    """None if the state has no Magnum cluster; a failed one counts."""
    for one in known.of_type(CLUSTER):
        if one.get("id"):
            made = {**(one.get("inputs") or {}), **(one.get("outputs") or {})}
            name, endpoint, project, region = (
                str(made.get(key) or "") for key in ("name", "apiAddress", "projectId", "region")
            )
            return Magnum(name, endpoint, project, region, str(one["id"]))
    return None


@dataclass
class MagnumTeardown(Teardown):
    """A stack that creates a Magnum cluster."""

    steps: ClassVar[tuple[Step, ...]] = OF_MAGNUM
    where: ClassVar[str] = "OpenStack"
    reach: ClassVar[str] = "network, floating IP, security groups"
    prover: ClassVar[str] = "Magnum"
    refused: ClassVar[Mapping[str, str]] = {
        "--force": "is for a Karpenter that does not run; Magnum deletes the nodes of {stack} itself",
    }

    @property
    def nothing(self) -> str:  # type: ignore[override]
        return "OpenStack is not queried offline" if self.options.offline else "no cluster"

    def refuse_options(self) -> None:
        """Besides the options that do not apply: an offline run gets no proof."""
        super().refuse_options()
        if self.options.cluster_gone and self.options.offline:
            fact = "needs proof from Magnum, which an offline run cannot get"
            raise InputError("--cluster-gone", fact, "run without --offline")

    def notes(self) -> tuple[str, ...]:
        return (_OFFLINE,) if self.options.offline else ()

    @cached_property
    def _cloud(self) -> Any:
        assert isinstance(self.env.cluster, OpenstackCluster)
        return connect(self.env.cluster.cloud, self.env.cluster.region)

    @property
    def _api(self) -> Api:
        return Api(self._cloud.connection)

    def require_place(self, known: Known, state: Mapping[str, Any]) -> None:
        made = magnum(known)
        if made is None or self.options.offline:
            return
        require_credentials_of(made.project, self.stack, self._cloud)
        region = self._cloud.region
        if made.region and region and made.region != region:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares region {region}, but the stack is in {made.region}",
                "set cluster.region back to the region of the stack",
            )

    def made(self, known: Known) -> Magnum | None:
        return magnum(known)

    def access(self, known: Known, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """The kubeconfig that the provider got from Magnum; empty for a cluster that was never completed."""
        if self.options.offline:
            return paths.kubeconfig
        for one in states.resources(shown()):
            if one["type"] == CLUSTER and one.get("id"):
                found = states.plain(one.get("outputs") or {}).get("kubeconfig") or {}
                return str(found.get("rawConfig") or found.get("raw_config") or "")
        return ""

    def require_gone(self, known: Known) -> str:
        """Magnum's answer, in the cluster's own project (`require_place`)."""
        made = magnum(known)
        assert made
        found = self._api.find("magnum", f"/clusters/{made.id}")
        if found is not None:
            fact = f"Magnum still has cluster {made.id} ({found.get('status')})"
            raise InputError(
                "--cluster-gone", fact, "run without it; if the cluster does not answer, check its network"
            )
        return f"Magnum has no cluster {made.id}"

    def leftovers(self, known: Known) -> OrphanedBalancers | None:
        """Load balancers with the cluster's id; None if there is no cluster, or in an offline run."""
        made = magnum(known)
        if made is None or self.options.offline:
            return None
        found = self._api.find("magnum", f"/clusters/{made.id}")
        return OrphanedBalancers(self._api, found or {"uuid": made.id})

    def blamed(self, known: Known, failure: Failure) -> Failure:
        """Adds what blocks the cluster and the provider did not name: the official one names nothing."""
        made = magnum(known)
        if made is None or self.options.offline:
            return failure
        try:
            cluster = self._api.find("magnum", f"/clusters/{made.id}")
            held = blockers(self._api, cluster) if cluster else []
        except Failure:
            return failure
        if cluster is None:
            return failure
        reason = cluster.get("status_reason") or "no reason given"
        status = f"Magnum reports {cluster.get('status')} ({reason})"
        named = "; ".join(line for line in held if line not in failure.fact)
        blocked = f"; possibly blocked by: {named}" if named else ""
        return Failure(
            f"cluster {made.name} of {self.stack}",
            f"is not deleted: {status}{blocked}; {failure.fact}",
            "delete what blocks it, and run the same command again to continue",
        )


class OrphanedBalancers(Sweeper):
    """Load balancers left by Services. Errors are those of `gpuform.clients.openstack.cloud.answers`.

    None is ``foreign``: before a deletion is tried, foreign and own cannot be told apart (`Teardown.blamed`).
    """

    def __init__(self, api: Api, cluster: Json) -> None:
        self._api, self._cluster = api, cluster

    def find(self) -> tuple[Leftover, ...]:
        there = self._api.listed("octavia", "/lbaas/loadbalancers", "loadbalancers")
        mine = of_cluster(there, self._cluster)
        return tuple(Leftover("load balancer", str(one["id"]), str(one["description"])) for one in mine)

    def delete(self, one: Leftover) -> str:
        """With all its parts (cascade)."""
        try:
            self._api.delete("octavia", f"/lbaas/loadbalancers/{one.id}", cascade="true")
        except Refused as refused:
            if refused.status != _CONFLICT:
                raise
            return "octavia is changing or deleting it"
        return one.why
