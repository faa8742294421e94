"""Changes to Magnum's clusters and groups that no person made, so they are not drift.

cluster-autoscaler sets the number of nodes of an elastic group. Magnum and its template write back undeclared
labels, which the program ignores for the same reason (``components.magnum``). How many nodes a group
has, and whether they are within its bounds, is read from the cluster itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuform.stack.drift.rules import DriftRules
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import magnum

if TYPE_CHECKING:
    from gpuform.engine import Step

CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
_WRITTEN_BACK = "labels"
_COUNT = "nodeCount"


class OpenstackDrift(DriftRules):
    """Nodes by their node group's label, and fields that Magnum or cluster-autoscaler sets."""

    def selector(self, env: Environment, pool: Pool) -> Mapping[str, str]:
        return magnum.selector(env, pool)

    def expected(self, env: Environment, step: Step, path: str) -> bool:
        if step.type not in (CLUSTER, NODE_GROUP):
            return False
        if path.partition(".")[0].partition("[")[0] == _WRITTEN_BACK:
            return True
        name = step.change.before.get("name") if step.change else None
        growing = {pool.name for pool in env.pools if pool.elastic}
        return step.type == NODE_GROUP and path == _COUNT and name in growing
