"""Load balancers that Kubernetes has made for Services and Ingresses of a Magnum cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuform.clients.openstack.api import Json


def of_cluster(found: Iterable[Json], cluster: Json) -> Iterator[Json]:
    """Load balancers with a description that ends in the id of the cluster or its stack, unless deleted.

    cloud-provider-openstack writes this description, and Magnum reads it (magnum/common/octavia.py). A name
    proves nothing: ``research-2-api`` does not belong to the cluster ``research``.
    """
    ids = "|".join(re.escape(str(id)) for key in ("uuid", "stack_id") if (id := cluster.get(key)))
    mark = re.compile(rf"Kubernetes .+ from cluster (?:{ids})$")
    for one in found:
        if one.get("provisioning_status") != "DELETED" and mark.match(str(one.get("description") or "")):
            yield one
