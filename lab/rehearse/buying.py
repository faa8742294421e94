"""What creates a rehearsal's nodes: Karpenter, arithmetic for Magnum's node groups, or only the program."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.places import Tools
from gpuform.usage.rehearsal import Refusal
from infra.config import price_list
from infra.model.environment import Environment
from infra.plan.pool_keeper import kept
from infra.plan.startup import any_gated
from lab.rehearse.buyer import Buyer
from lab.rehearse.cluster import NODE_POOLS, Cluster
from lab.rehearse.counted import Counted
from lab.rehearse.karpenter import Karpenter, karpenter
from lab.rehearse.options import Options, growing
from lab.rehearse.program import Gate, Keeper
from lab.rehearse.watch import Now, Watch

if TYPE_CHECKING:
    from lab.rehearse.cloud import Bought, Cloud


CONSOLIDATE_AFTER = "5s"
"""``consolidateAfter`` of every NodePool in the shrink step; the declared minutes are too long to wait."""


class ByKarpenter(Buyer):
    """Karpenter, on any cloud."""

    quiet_s = 45.0
    """Karpenter retries a pod after at most ten seconds, and takes as long to notice a node's state."""

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


class FromAws(ByKarpenter):
    """The real Karpenter, which buys from a simulated AWS."""

    way = "aws"

    def __init__(self, cloud: Cloud, karpenter: Karpenter) -> None:
        self._cloud, self._karpenter = cloud, karpenter

    def paid(self) -> Mapping[str, float | None]:
        return {one.node: one.usd_per_hour for one in self._cloud.bought() if one.node}

    def unjoined(self, pool: str) -> tuple[str, ...]:
        return tuple(one.id for one in self._cloud.bought() if one.pool == pool and not one.node)

    def refusals(self) -> tuple[Refusal, ...]:
        found = self._cloud.refused()
        return tuple(Refusal(one.machine, one.zone, one.capacity, one.times) for one in found)

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

        def over(now: Now) -> bool:
            gone = node not in {one.name for one in now.nodes}
            return gone and sum(pod.placed for pod in now.workloads) >= placed

        if watch.until(over, timeout_s, timeout_s):
            return f"{what}: removed, and as many pods run as before, after {time.monotonic() - began:.0f} s"
        return f"{what}: not finished after {timeout_s:.0f} s"

    def _on_spot(self, now: Now) -> Bought | None:
        count = {node.name: sum(pod.node == node.name for pod in now.workloads) for node in now.nodes}
        there = [
            one
            for one in self._cloud.bought()
            if one.capacity == "spot" and one.node in count and not one.ended
        ]
        return max(there, key=lambda one: count[one.node or ""], default=None)

    def memory(self) -> Mapping[str, int]:
        return {"karpenter": self._karpenter.rss_bytes}

    def troubles(self) -> tuple[str, ...]:
        found = [f"the simulated AWS: {one}" for one in self._cloud.trouble]
        if not self._karpenter.running:
            found.append(f"Karpenter does not run: {self._karpenter.trouble or 'see its log'}")
        return tuple(found)


@contextmanager
def buyer(env: Environment, own: Paths, tools: Tools, options: Options, cluster: Cluster) -> Iterator[Buyer]:
    """The buyer of this environment's nodes, with its processes, while the context lasts."""
    own.logs.mkdir(parents=True, exist_ok=True)
    log = own.logs / "karpenter.log"
    with ExitStack() as held:
        if any_gated(env) or env.ownership.device_plugin == "cluster":  # simulated by ours, with its gate
            held.enter_context(Gate(own.kubeconfig, own.state / "controllers/gate").following())
        if kept(env):
            held.enter_context(Keeper(own.kubeconfig, own.state / "controllers/keeper").following())
        if growing(env):
            yield Counted(env)
            return
        if not any(env.by_karpenter(pool) for pool in env.pools):
            yield Buyer()
            return
        yield _from_aws(env, own, tools, options, held, log)


def _from_aws(
    env: Environment, own: Paths, tools: Tools, options: Options, held: ExitStack, log: Path
) -> FromAws:
    try:
        from lab.rehearse.cloud import Cloud, Shortage

        cloud = held.enter_context(Cloud(env, price_list(env), own.kubeconfig, tools))
    except ImportError as error:
        raise Failure(
            "rehearsal of AWS", f"{error.name} is not installed", "pip install 'gpuform[rehearse]'"
        ) from None
    cloud.market.set_short(
        *(Shortage(machine=one.machine, zone=one.zone, capacity=one.capacity) for one in options.short)
    )
    for name, left in options.used_up:
        cloud.market.use_up(name, left)
    return FromAws(cloud, held.enter_context(karpenter(own, tools, cloud.variables, log)))
