"""Load balancers that Kubernetes has made for Services and Ingresses of a Magnum cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuform.clouds.openstack.api import Api, Json


@dataclass(frozen=True)
class LoadBalancer:
    """A load balancer; ``why`` is the description that names the cluster, ``status`` is octavia's."""

    id: str
    name: str
    why: str
    status: str

    @property
    def going(self) -> bool:
        return self.status == "PENDING_DELETE"


def load_balancers(api: Api, cluster: Json) -> Iterator[LoadBalancer]:
    yield from of_cluster(api.listed("octavia", "/lbaas/loadbalancers", "loadbalancers"), cluster)


def of_cluster(found: Iterable[Json], cluster: Json) -> Iterator[LoadBalancer]:
    """Load balancers with a description that ends in the id of the cluster or its stack, unless deleted.

    cloud-provider-openstack writes this description, and Magnum reads it (magnum/common/octavia.py). A name
    proves nothing: ``research-2-api`` does not belong to the cluster ``research``.
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    mark = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for one in found:
        status, said = str(one.get("provisioning_status")), str(one.get("description") or "")
        if status != "DELETED" and mark.match(said):
            yield LoadBalancer(str(one["id"]), str(one.get("name")), said, status)
