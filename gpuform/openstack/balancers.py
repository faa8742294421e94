"""Load balancers that Kubernetes has made for Services and Ingresses of a Magnum cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpuform.openstack.api import Api, Json


@dataclass(frozen=True)
class LoadBalancer:
    """One of them; ``why`` it is the cluster's; ``going``: octavia is at it already."""

    id: str
    why: str
    going: bool


def load_balancers(api: Api, cluster: Json) -> Iterator[LoadBalancer]:
    """Those whose description ends in the cluster's id, or in its stack's, and that are not gone.

    cloud-provider-openstack writes it so, and Magnum reads it (magnum/common/octavia.py).
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    mark = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for one in api.listed("octavia", "/lbaas/loadbalancers", "loadbalancers"):
        status, said = str(one.get("provisioning_status")), str(one.get("description") or "")
        if status != "DELETED" and mark.match(said):
            yield LoadBalancer(str(one["id"]), said, status == "PENDING_DELETE")
