"""What creates a rehearsal's nodes: Karpenter, arithmetic for Magnum's node groups, or only the program."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine.files import Tools
from gpuform.usage.rehearsal import Refusal
from infra.config import price_list
from infra.model.environment import Environment
from infra.plan import nodes
from infra.plan.pool_keeper import kept_pools
from infra.plan.startup import any_gated
from lab.rehearse import pods
from lab.rehearse.cluster import NODE_POOLS, NODES, PODS, Cluster
from lab.rehearse.fidelity import Way
from lab.rehearse.karpenter import Release, karpenter_supervisor
from lab.rehearse.options import Options
from lab.rehearse.program import Gate, Keeper
from lab.rehearse.supervisor import Supervisor
from lab.rehearse.watch import Snapshot, Watch

if TYPE_CHECKING:
    from lab.rehearse.cloud.market import LaunchedInstance
    from lab.rehearse.cloud.server import Cloud

CONSOLIDATE_AFTER = "5s"
"""``consolidateAfter`` of every NodePool in the shrink step; the declared minutes are too long to wait."""


class NodeSource:
    """Buys nothing: every node exists from the start."""

    way: Way = "none"
    quiet_s = 10.0
    """Seconds without a change after which no further change is expected."""
    removal_reason = "no event gives a reason"
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

    def hasten_removal(self, cluster: Cluster) -> str:
        """Have idle nodes removed sooner than declared; returns, in words, what is not as declared."""
        return "no nodes are removed: every pool has a fixed size"

    def memory(self) -> Mapping[str, int]:
        """Resident bytes of the source's processes, by name."""
        return {}

    def troubles(self) -> tuple[str, ...]:
        return ()


class CalculatedGroups(NodeSource):
    """Magnum's autoscaled groups; all nodes exist from the start. No cluster-autoscaler runs.

    A group has as many nodes as the workloads need, by what one of its nodes holds, within its bounds
    (`infra.plan.nodes.group_size`).
    """

    way = "counted"
    removal_reason = "its group needs fewer nodes for the remaining pods (counted)"

    def __init__(self, env: Environment) -> None:
        self._env = env

    def hasten_removal(self, cluster: Cluster) -> str:
        """Delete the nodes that half of the pods do not need; a node with a bare pod stays."""
        objects, half = cluster.items(PODS), pods.halved(self._env)
        bare = {
            item["spec"].get("nodeName") for item in objects if not item["metadata"].get("ownerReferences")
        }
        surplus_nodes = set()
        for pool in self._env.pools:
            count = nodes.group_size(self._env, pool)
            names = [f"{pool.name}-{index}" for index in reversed(range(count))]
            surplus = count - nodes.group_size(half, pool)
            surplus_nodes |= {*[name for name in names if name not in bare][:surplus]}
        for name in sorted(surplus_nodes):
            cluster.delete(f"{NODES}/{name}")
        for item in objects:  # the collector of orphaned pods would take a minute
            if item["spec"].get("nodeName") in surplus_nodes:
                meta = item["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                cluster.delete(f"{path}?gracePeriodSeconds=0")
        return "elastic groups are counted again at once; cluster-autoscaler would wait for ten minutes"


class KarpenterOnAws(NodeSource):
    """The real Karpenter, which buys from a simulated AWS."""

    way = "aws"
    quiet_s = 45.0
    """Karpenter retries a pod after at most ten seconds, and takes as long to notice a node's state."""

    def __init__(self, cloud: Cloud, karpenter: Supervisor[Release]) -> None:
        self._cloud, self._market, self._karpenter = cloud, cloud.market, karpenter

    def paid(self) -> Mapping[str, float | None]:
        instances = self._market.instances()
        return {instance.node: instance.usd_per_hour for instance in instances if instance.node}

    def unjoined(self, pool: str) -> tuple[str, ...]:
        instances = self._market.instances()
        return tuple(item.id for item in instances if item.pool == pool and not item.node)

    def refusals(self) -> tuple[Refusal, ...]:
        return self._market.refusals()

    def interrupt(self, watch: Watch, timeout_s: float) -> str:
        """Send a spot interruption warning through the queue, and wait until the pods run elsewhere."""
        before = watch.now
        instance = self._busiest_spot_instance(before)
        if instance is None or instance.node is None:
            return super().interrupt(watch, timeout_s)
        node, placed = instance.node, sum(pod.is_placed for pod in before.workloads)
        pods = sum(pod.node == node for pod in before.workloads)
        event = f"spot interruption of {node} ({instance.machine}, {instance.zone}) with {pods} pods"
        began = time.monotonic()
        self._cloud.interrupt(instance.id)

        def is_replaced(now: Snapshot) -> bool:
            is_removed = node not in {other.name for other in now.nodes}
            return is_removed and sum(pod.is_placed for pod in now.workloads) >= placed

        if watch.wait_until(is_replaced, timeout_s, timeout_s):
            return f"{event}: removed, and as many pods run as before, after {time.monotonic() - began:.0f} s"
        return f"{event}: not finished after {timeout_s:.0f} s"

    def _busiest_spot_instance(self, now: Snapshot) -> LaunchedInstance | None:
        pods_by_node = {node.name: sum(pod.node == node.name for pod in now.workloads) for node in now.nodes}
        candidates = [
            instance
            for instance in self._market.instances()
            if instance.capacity == "spot" and instance.node in pods_by_node and not instance.ended
        ]
        return max(candidates, key=lambda instance: pods_by_node[instance.node or ""], default=None)

    def hasten_removal(self, cluster: Cluster) -> str:
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
        troubles = [f"the simulated AWS: {trouble}" for trouble in self._cloud.trouble]
        if not self._karpenter.running:
            troubles.append(f"Karpenter does not run: {self._karpenter.trouble or 'see its log'}")
        return tuple(troubles)


@contextmanager
def node_source(
    env: Environment, run_paths: Paths, tools: Tools, options: Options, cluster: Cluster
) -> Iterator[NodeSource]:
    """The source of this environment's nodes, with its processes, while the context lasts."""
    run_paths.logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as contexts:
        kubeconfig, folder = run_paths.kubeconfig, run_paths.state / "controllers"
        if any_gated(env) or env.ownership.device_plugin == "cluster":  # simulated by ours, with its gate
            contexts.enter_context(Gate(kubeconfig, folder / "gate").supervisor())
        if kept_pools(env):
            contexts.enter_context(Keeper(kubeconfig, folder / "keeper").supervisor())
        if any(pool.by_autoscaler for pool in env.pools):
            yield CalculatedGroups(env)
        elif env.has_karpenter:
            yield _karpenter_on_aws(env, run_paths, tools, options, cluster, contexts)
        else:
            yield NodeSource()


def _karpenter_on_aws(
    env: Environment, run_paths: Paths, tools: Tools, options: Options, cluster: Cluster, contexts: ExitStack
) -> KarpenterOnAws:
    try:
        from lab.rehearse.cloud.server import Cloud

        cloud = contexts.enter_context(Cloud(env, price_list(env, run_paths.prices), cluster))
    except ImportError as error:
        raise InputError(
            "rehearsal of AWS", f"{error.name} is not installed", "pip install 'gpuform[rehearse]'"
        ) from None
    cloud.market.set_shortages(*options.shortages)
    for name, left in options.reservations_left:
        cloud.market.set_left(name, left)
    supervisor = karpenter_supervisor(run_paths, tools, cloud.variables, run_paths.logs / "karpenter.log")
    return KarpenterOnAws(cloud, contexts.enter_context(supervisor))
