"""What a destroy must know about OpenStack: Magnum deletes a cluster unless another resource blocks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.clouds.openstack.api import Api, Json
from gpuform.clouds.openstack.balancers import LoadBalancer, load_balancers
from gpuform.clouds.openstack.blockers import blockers
from gpuform.clouds.openstack.cloud import Refused, connect
from gpuform.stack.destroy.grounds import Ground
from gpuform.stack.destroy.leftovers import Leftover
from gpuform.stack.destroy.state import Known, Magnum
from gpuform.stack.destroy.steps import OF_MAGNUM, Step
from gpuform.stack.destroy.waiting import Left, Say, until_gone
from gpuform.stack.recover import state as states
from gpuform.stack.recover.openstack import CLUSTER, require_credentials_of
from infra.model.openstack import OpenstackCluster

_BALANCER = "load balancer"
_CONFLICT = 409
_OFFLINE = "offline: OpenStack is not queried for leftovers"


@dataclass
class OnOpenstack(Ground):
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
        made = known.magnum
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
        return known.magnum

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
        made = known.magnum
        assert made
        found = self._api.find("magnum", f"/clusters/{made.id}")
        if found is not None:
            fact = f"Magnum still has cluster {made.id} ({found.get('status')})"
            raise InputError(
                "--cluster-gone", fact, "run without it; if the cluster does not answer, check its network"
            )
        return f"Magnum has no cluster {made.id}"

    def leftovers(self, known: Known) -> Swept | None:
        """Load balancers with the cluster's id; None if there is no cluster, or in an offline run."""
        if known.magnum is None or self.options.offline:
            return None
        found = self._api.find("magnum", f"/clusters/{known.magnum.id}")
        return Swept(self._api, found or {"uuid": known.magnum.id})

    def blamed(self, known: Known, failure: Failure) -> Failure:
        """Adds what blocks the cluster and the provider did not name: the official one names nothing."""
        made = known.magnum
        if made is None or self.options.offline:
            return failure
        try:
            cluster = self._api.find("magnum", f"/clusters/{made.id}")
            held = blockers(self._cloud, cluster) if cluster else []
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


class Swept:
    """Load balancers left by Services. Errors are those of `gpuform.clouds.openstack.cloud.answers`."""

    def __init__(self, api: Api, cluster: Json) -> None:
        self._api, self._cluster = api, cluster

    def find(self) -> tuple[Leftover, ...]:
        return tuple(_leftover(one) for one in load_balancers(self._api, self._cluster))

    def foreign(self, unused: bool = False) -> tuple[Leftover, ...]:
        """Empty: before a deletion is tried, foreign and own cannot be told apart; see `Ground.blamed`."""
        return ()

    def sweep(self, seconds: float, say: Say) -> tuple[Leftover, ...]:
        """Delete them with all their parts (cascade), and wait until they are gone. Raises StillThere."""
        taken: dict[Leftover, None] = {}

        def look() -> list[Left]:
            found = list(load_balancers(self._api, self._cluster))
            taken.update(dict.fromkeys(_leftover(one) for one in found))
            return [Left(_BALANCER, one.id, self._take(one)) for one in found]

        until_gone(look, seconds, say)
        return tuple(taken)

    def _take(self, one: LoadBalancer) -> str:
        if one.going:
            return "octavia is deleting it"
        try:
            self._api.delete("octavia", f"/lbaas/loadbalancers/{one.id}", cascade="true")
        except Refused as refused:
            if refused.status != _CONFLICT:  # it is changing now; the next look tries again
                raise
            return refused.said
        return one.why


def _leftover(one: LoadBalancer) -> Leftover:
    return Leftover(_BALANCER, one.id, one.why)
