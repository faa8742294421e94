"""Load balancers that Kubernetes has made for Services and Ingresses of a Magnum cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuform.openstack.api import Api, Json


@dataclass(frozen=True)
class LoadBalancer:
    """One of them; ``why`` it is the cluster's; ``status`` is octavia's."""

    id: str
    name: str
    why: str
    status: str

    @property
    def going(self) -> bool:
        """Whether octavia is at it already."""
        return self.status == "PENDING_DELETE"


def load_balancers(api: Api, cluster: Json) -> Iterator[LoadBalancer]:
    """The cluster's, of all that the project has."""
    yield from of_cluster(api.listed("octavia", "/lbaas/loadbalancers", "loadbalancers"), cluster)


def of_cluster(found: Iterable[Json], cluster: Json) -> Iterator[LoadBalancer]:
    """Those whose description ends in the cluster's id, or in its stack's, and that are not gone.

    cloud-provider-openstack writes it so, and Magnum reads it (magnum/common/octavia.py). A name proves
    nothing: ``research-2-api`` is not of the cluster ``research``.
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    mark = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for one in found:
        status, said = str(one.get("provisioning_status")), str(one.get("description") or "")
        if status != "DELETED" and mark.match(said):
            yield LoadBalancer(str(one["id"]), str(one.get("name")), said, status)
