"""Magnum's autoscaled node groups in a rehearsal: their size is computed. No cluster-autoscaler runs.

A group has as many nodes as the workloads need, by what one of its nodes holds, within its bounds
(`infra.plan.played_groups.size`).
"""

from __future__ import annotations

from infra.model.environment import Environment
from infra.plan import played_groups
from lab.rehearse import pods
from lab.rehearse.buyer import Buyer
from lab.rehearse.cluster import NODES, PODS, Cluster


class Counted(Buyer):
    """The nodes of groups with bounds; all exist from the start."""

    way = "counted"
    gone = "its group needs fewer nodes for the remaining pods (counted)"

    def __init__(self, env: Environment) -> None:
        self._env = env

    def hurry(self, cluster: Cluster) -> str:
        """Delete the nodes that half of the pods do not need; a node with a bare pod stays."""
        there, fewer = cluster.items(PODS), pods.halved(self._env)
        bare = {pod["spec"].get("nodeName") for pod in there if not pod["metadata"].get("ownerReferences")}
        going = set()
        for pool in self._env.pools:
            count = played_groups.size(self._env, pool)
            names = [f"{pool.name}-{index}" for index in reversed(range(count))]
            surplus = count - played_groups.size(fewer, pool)
            going |= set([name for name in names if name not in bare][:surplus])
        for name in sorted(going):
            cluster.delete(f"{NODES}/{name}")
        for pod in there:  # the collector of orphaned pods would take a minute
            if pod["spec"].get("nodeName") in going:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                cluster.delete(f"{path}?gracePeriodSeconds=0")
        return "elastic groups are counted again at once; cluster-autoscaler would wait for ten minutes"
