"""What creates a rehearsal's nodes: Karpenter, arithmetic for Magnum's node groups, or only the program."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.places import Tools
from gpuform.usage.rehearsal import Refusal
from infra.config import price_list
from infra.model.environment import Environment
from infra.plan import played
from infra.plan.pool_keeper import kept
from infra.plan.startup import any_gated
from lab.rehearse import pods
from lab.rehearse.cluster import NODE_POOLS, NODES, PODS, Cluster
from lab.rehearse.fidelity import Way
from lab.rehearse.karpenter import Release, karpenter
from lab.rehearse.options import Options
from lab.rehearse.program import Gate, Keeper
from lab.rehearse.supervisor import Supervisor
from lab.rehearse.watch import Snapshot, Watch

if TYPE_CHECKING:
    from lab.rehearse.cloud.market import Bought
    from lab.rehearse.cloud.server import Cloud

CONSOLIDATE_AFTER = "5s"
"""``consolidateAfter`` of every NodePool in the shrink step; the declared minutes are too long to wait."""


class NodeSource:
    """Buys nothing: every node exists from the start."""

    way: Way = "none"
    quiet_s = 10.0
    """Seconds without a change after which no further change is expected."""
    gone = "no event gives a reason"
    """The reason shown for a removed node without an event."""

    def paid(self) -> Mapping[str, float | None]:
        """USD per hour of each bought node, by name."""
        return {}

    def unjoined(self, pool: str) -> tuple[str, ...]:
        """Instances of a pool that were bought and never became a node."""
        return ()

    def refusals(self) -> tuple[Refusal, ...]:
        return ()

    def interrupt(self, watch: Watch, timeout_s: float) -> str:
        """Interrupt a spot node as AWS does; returns the result in words."""
        return "no spot node was launched, so none was interrupted"

    def hurry(self, cluster: Cluster) -> str:
        """Have idle nodes removed sooner than declared; returns, in words, what is not as declared."""
        return "no nodes are removed: every pool has a fixed size"

    def memory(self) -> Mapping[str, int]:
        """Resident bytes of the source's processes, by name."""
        return {}

    def troubles(self) -> tuple[str, ...]:
        return ()


class Counted(NodeSource):
    """Magnum's autoscaled groups; all nodes exist from the start. No cluster-autoscaler runs.

    A group has as many nodes as the workloads need, by what one of its nodes holds, within its bounds
    (`infra.plan.played.group_size`).
    """

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
            count = played.group_size(self._env, pool)
            names = [f"{pool.name}-{index}" for index in reversed(range(count))]
            surplus = count - played.group_size(fewer, pool)
            going |= set([name for name in names if name not in bare][:surplus])
        for name in sorted(going):
            cluster.delete(f"{NODES}/{name}")
        for pod in there:  # the collector of orphaned pods would take a minute
            if pod["spec"].get("nodeName") in going:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                cluster.delete(f"{path}?gracePeriodSeconds=0")
        return "elastic groups are counted again at once; cluster-autoscaler would wait for ten minutes"


class FromAws(NodeSource):
    """The real Karpenter, which buys from a simulated AWS."""

    way = "aws"
    quiet_s = 45.0
    """Karpenter retries a pod after at most ten seconds, and takes as long to notice a node's state."""

    def __init__(self, cloud: Cloud, karpenter: Supervisor[Release]) -> None:
        self._cloud, self._market, self._karpenter = cloud, cloud.market, karpenter

    def paid(self) -> Mapping[str, float | None]:
        return {one.node: one.usd_per_hour for one in self._market.bought() if one.node}

    def unjoined(self, pool: str) -> tuple[str, ...]:
        return tuple(one.id for one in self._market.bought() if one.pool == pool and not one.node)

    def refusals(self) -> tuple[Refusal, ...]:
        return self._market.refusals()

    def interrupt(self, watch: Watch, timeout_s: float) -> str:
        """Send a spot interruption warning through the queue, and wait until the pods run elsewhere."""
        before = watch.now
        chosen = self._on_spot(before)
        if chosen is None or chosen.node is None:
            return super().interrupt(watch, timeout_s)
        node, placed = chosen.node, sum(pod.placed for pod in before.workloads)
        pods = sum(pod.node == node for pod in before.workloads)
        what = f"spot interruption of {node} ({chosen.machine}, {chosen.zone}) with {pods} pods"
        began = time.monotonic()
        self._cloud.interrupt(chosen.id)

        def over(now: Snapshot) -> bool:
            gone = node not in {one.name for one in now.nodes}
            return gone and sum(pod.placed for pod in now.workloads) >= placed

        if watch.until(over, timeout_s, timeout_s):
            return f"{what}: removed, and as many pods run as before, after {time.monotonic() - began:.0f} s"
        return f"{what}: not finished after {timeout_s:.0f} s"

    def _on_spot(self, now: Snapshot) -> Bought | None:
        count = {node.name: sum(pod.node == node.name for pod in now.workloads) for node in now.nodes}
        there = [
            one
            for one in self._market.bought()
            if one.capacity == "spot" and one.node in count and not one.ended
        ]
        return max(there, key=lambda one: count[one.node or ""], default=None)

    def hurry(self, cluster: Cluster) -> str:
        """Shorten ``consolidateAfter`` of NodePools that scale; fixed ones never consolidate."""
        for pool in cluster.items(NODE_POOLS):
            if "replicas" not in pool["spec"]:
                body = {"spec": {"disruption": {"consolidateAfter": CONSOLIDATE_AFTER}}}
                cluster.patch(f"{NODE_POOLS}/{pool['metadata']['name']}", body)
        return (
            f"consolidateAfter is {CONSOLIDATE_AFTER} in this step instead of the declared minutes; "
            "disruption budgets and policies are as declared"
        )

    def memory(self) -> Mapping[str, int]:
        return {"karpenter": self._karpenter.rss_bytes}

    def troubles(self) -> tuple[str, ...]:
        found = [f"the simulated AWS: {one}" for one in self._cloud.trouble]
        if not self._karpenter.running:
            found.append(f"Karpenter does not run: {self._karpenter.trouble or 'see its log'}")
        return tuple(found)


@contextmanager
def node_source(
    env: Environment, own: Paths, tools: Tools, options: Options, cluster: Cluster
) -> Iterator[NodeSource]:
    """The source of this environment's nodes, with its processes, while the context lasts."""
    own.logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if any_gated(env) or env.ownership.device_plugin == "cluster":  # simulated by ours, with its gate
            held.enter_context(Gate(own.kubeconfig, own.state / "controllers/gate").following())
        if kept(env):
            held.enter_context(Keeper(own.kubeconfig, own.state / "controllers/keeper").following())
        if any(env.by_autoscaler(pool) for pool in env.pools):
            yield Counted(env)
        elif any(env.by_karpenter(pool) for pool in env.pools):
            yield _from_aws(env, own, tools, options, cluster, held)
        else:
            yield NodeSource()


def _from_aws(
    env: Environment, own: Paths, tools: Tools, options: Options, cluster: Cluster, held: ExitStack
) -> FromAws:
    try:
        from lab.rehearse.cloud.server import Cloud

        cloud = held.enter_context(Cloud(env, price_list(env), cluster))
    except ImportError as error:
        raise Failure(
            "rehearsal of AWS", f"{error.name} is not installed", "pip install 'gpuform[rehearse]'"
        ) from None
    cloud.market.set_short(*options.short)
    for name, left in options.used_up:
        cloud.market.use_up(name, left)
    log = own.logs / "karpenter.log"
    return FromAws(cloud, held.enter_context(karpenter(own, tools, cloud.variables, log)))
