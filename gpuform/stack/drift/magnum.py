"""Changes to Magnum's clusters and groups that no person made, so they are not drift.

cluster-autoscaler sets the number of nodes of an elastic group. Magnum and its template write back undeclared
labels, which the program ignores for the same reason (``components.magnum_cluster``). How many nodes a group
has, and whether they are within its bounds, is read from the cluster itself.
"""

from __future__ import annotations

from gpuform.engine import Step
from infra.model.environment import Environment

CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
_WRITTEN_BACK = "labels"
_COUNT = "nodeCount"


def expected(env: Environment, step: Step, path: str) -> bool:
    """Whether Magnum or cluster-autoscaler sets the field at ``path``, so a difference is not drift."""
    if step.type not in (CLUSTER, NODE_GROUP):
        return False
    if path.partition(".")[0].partition("[")[0] == _WRITTEN_BACK:
        return True
    name = step.change.before.get("name") if step.change else None
    growing = {pool.name for pool in env.pools if pool.elastic}
    return step.type == NODE_GROUP and path == _COUNT and name in growing
