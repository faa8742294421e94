"""What of Magnum's clusters and groups changes without anybody's hand, and so is no drift.

cluster-autoscaler sets the number of nodes of a group that grows. Magnum and its template write labels back
that nobody declared, which the program ignores for the same reason (``components.magnum_cluster``). How many
nodes a group has, and whether they are within its bounds, the cluster itself is asked.
"""

from __future__ import annotations

from gpuform.engine import Step
from infra.model.environment import Environment

CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
_WRITTEN_BACK = "labels"
_COUNT = "nodeCount"


def expected(env: Environment, step: Step, path: str) -> bool:
    """Whether a difference at ``path`` of a resource is nobody's doing."""
    if step.type not in (CLUSTER, NODE_GROUP):
        return False
    if path.partition(".")[0].partition("[")[0] == _WRITTEN_BACK:
        return True
    name = step.change.before.get("name") if step.change else None
    growing = {pool.name for pool in env.pools if pool.elastic}
    return step.type == NODE_GROUP and path == _COUNT and name in growing
