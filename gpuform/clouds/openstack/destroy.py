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
from gpuform.clients.openstack.blockers import list_blockers, load_balancers_of
from gpuform.clients.openstack.cloud import OpenstackError, connect
from gpuform.clouds.openstack.lookups import CLUSTER
from gpuform.clouds.openstack.recover import require_credentials_of
from gpuform.stack.destroy.state import State
from gpuform.stack.destroy.teardown import CreatedCluster, Leftover, Step, Sweeper, Teardown
from gpuform.stack.recover import state as states
from infra.model.openstack.cluster import OpenstackCluster

_CONFLICT = 409
_OFFLINE = "offline: OpenStack is not queried for leftovers"

MAGNUM_STEPS: tuple[Step, ...] = (
    Step("workloads", "deletes the workloads that the stack declares", 300),
    Step("load balancers", "deletes Services of type LoadBalancer and Ingresses, of every namespace", 600),
    Step("volumes", "keeps volumes with data at OpenStack; with --purge, deletes claims and volumes", 600),
    Step("leftovers", "deletes load balancers of Services that are gone, by the cluster's id", 600),
    Step("cluster", "the engine deletes the platform, node groups, the cluster"),
)
"""Magnum removes the nodes itself: no controller has to be alive for that."""


@dataclass(frozen=True)
class Magnum(CreatedCluster):
    """The Magnum cluster in the state; ``project`` is its OpenStack project."""

    project: str
    region: str
    id: str


def magnum_cluster(state: State) -> Magnum | None:
    """None if the state has no Magnum cluster; a failed one counts."""
    for resource in state.of_type(CLUSTER):
        if resource.get("id"):
            fields = {**(resource.get("inputs") or {}), **(resource.get("outputs") or {})}
            keys = ("name", "apiAddress", "projectId", "region")
            name, endpoint, project, region = (str(fields.get(key) or "") for key in keys)
            return Magnum(name, endpoint, project, region, str(resource["id"]))
    return None


@dataclass
class MagnumTeardown(Teardown):
    """A stack that creates a Magnum cluster."""

    steps: ClassVar[tuple[Step, ...]] = MAGNUM_STEPS
    cloud_name: ClassVar[str] = "OpenStack"
    reach_hint: ClassVar[str] = "network, floating IP, security groups"
    prover: ClassVar[str] = "Magnum"
    refused_options: ClassVar[Mapping[str, str]] = {
        "--force": "is for a Karpenter that does not run; Magnum deletes the nodes of {stack} itself",
    }

    @property
    def nothing_found(self) -> str:  # type: ignore[override]
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

    def require_account(self, state: State, export: Mapping[str, Any]) -> None:
        cluster = magnum_cluster(state)
        if cluster is None or self.options.offline:
            return
        require_credentials_of(cluster.project, self.stack, self._cloud)
        region = self._cloud.region
        if cluster.region and region and cluster.region != region:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares region {region}, but the stack is in {cluster.region}",
                "set cluster.region back to the region of the stack",
            )

    def created_cluster(self, state: State) -> Magnum | None:
        return magnum_cluster(state)

    def access(self, state: State, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """The kubeconfig that the provider got from Magnum; empty for a cluster that was never completed."""
        if self.options.offline:
            return paths.kubeconfig
        for resource in states.resources(shown()):
            if resource["type"] == CLUSTER and resource.get("id"):
                kubeconfig = states.reveal_secrets(resource.get("outputs") or {}).get("kubeconfig") or {}
                return str(kubeconfig.get("rawConfig") or kubeconfig.get("raw_config") or "")
        return ""

    def require_gone(self, state: State) -> str:
        """Magnum's answer, in the cluster's own project (`require_account`)."""
        cluster = magnum_cluster(state)
        assert cluster
        answer = self._api.find("magnum", f"/clusters/{cluster.id}")
        if answer is not None:
            fact = f"Magnum still has cluster {cluster.id} ({answer.get('status')})"
            remedy = "run without it; if the cluster does not answer, check its network"
            raise InputError("--cluster-gone", fact, remedy)
        return f"Magnum has no cluster {cluster.id}"

    def leftovers(self, state: State) -> OrphanedBalancers | None:
        """Load balancers with the cluster's id; None if there is no cluster, or in an offline run."""
        cluster = magnum_cluster(state)
        if cluster is None or self.options.offline:
            return None
        answer = self._api.find("magnum", f"/clusters/{cluster.id}")
        return OrphanedBalancers(self._api, answer or {"uuid": cluster.id})

    def explain_failure(self, state: State, failure: Failure) -> Failure:
        """Adds what blocks the cluster and the provider did not name: the official one names nothing."""
        declared = magnum_cluster(state)
        if declared is None or self.options.offline:
            return failure
        try:
            cluster = self._api.find("magnum", f"/clusters/{declared.id}")
            lines = list_blockers(self._api, cluster) if cluster else []
        except Failure:
            return failure
        if cluster is None:
            return failure
        reason = cluster.get("status_reason") or "no reason given"
        status = f"Magnum reports {cluster.get('status')} ({reason})"
        unnamed = "; ".join(line for line in lines if line not in failure.fact)
        blocked = f"; possibly blocked by: {unnamed}" if unnamed else ""
        return Failure(
            f"cluster {declared.name} of {self.stack}",
            f"is not deleted: {status}{blocked}; {failure.fact}",
            "delete what blocks it, and run the same command again to continue",
        )


class OrphanedBalancers(Sweeper):
    """Load balancers left by Services; errors as of `gpuform.clients.openstack.cloud.translate_errors`.

    None is ``foreign``: before a deletion is tried, foreign and own cannot be told apart
    (`Teardown.explain_failure`).
    """

    def __init__(self, api: Api, cluster: Json) -> None:
        self._api, self._cluster = api, cluster

    def find(self) -> tuple[Leftover, ...]:
        balancers = self._api.list_all("octavia", "/lbaas/loadbalancers", "loadbalancers")
        own = load_balancers_of(balancers, self._cluster)
        return tuple(Leftover("load balancer", str(one["id"]), str(one["description"])) for one in own)

    def delete(self, leftover: Leftover) -> str:
        try:
            self._api.delete_load_balancer(leftover.id)
        except OpenstackError as error:
            if error.status != _CONFLICT:
                raise
            return "octavia is changing or deleting it"
        return leftover.why
