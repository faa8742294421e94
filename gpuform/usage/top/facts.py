"""All data of a stack's report, read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuform.checkout.errors import Failure
from gpuform.usage import nodes as seen
from gpuform.usage.cluster_objects import Json, Objects
from gpuform.usage.node_prices import NodePrices, total, used_share
from gpuform.usage.prometheus import Alert, Prometheus
from gpuform.usage.status import ClusterStatus, PoolStatus, summarise
from gpuform.usage.top.measured import History, last_hour
from gpuform.usage.top.read import measure, view
from gpuform.usage.top.view import Node, View
from infra.model.amounts import quantity
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.prices import PriceList
from infra.plan.bill import Bill
from infra.plan.cost import bill

_SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class Money:
    """USD per hour; None if not known.

    ``idle`` is the cost of what is not requested, ``unused`` of what is requested and not used, by
    utilisation; the rest is in use.
    """

    paid: float | None
    idle: float | None
    unused: float | None = None


@dataclass(frozen=True)
class PoolFacts:
    """A pool of the report; ``nodes`` are those with GPUs, ``busy`` counts GPUs by utilisation."""

    status: PoolStatus
    nodes: tuple[Node, ...]
    money: Money

    @property
    def gpus(self) -> int:
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def requested(self) -> float:
        return sum(node.requested for node in self.nodes)

    @property
    def busy(self) -> float | None:
        """Number of busy GPUs; None without measurements."""
        found = [node.busy for node in self.nodes if node.busy is not None]
        return sum(found) if found else None


@dataclass(frozen=True)
class Limit:
    """Karpenter's limit of a resource for a NodePool, and what it has bought, in the same unit."""

    node_pool: str
    resource: str
    has: float
    most: float


@dataclass(frozen=True)
class Facts:
    """The whole report; ``at`` in Unix seconds. ``alerts`` are the firing ones, the most severe first."""

    stack: str
    at: float
    status: ClusterStatus
    view: View
    pools: tuple[PoolFacts, ...]
    bill: Bill
    alerts: tuple[Alert, ...] = ()
    pending: int = 0
    history: History = History()  # noqa: RUF009  (frozen)
    limits: tuple[Limit, ...] = ()
    prices_of: Mapping[str, float | None] | None = None
    """USD per hour of each node, by name."""


def gather(
    env: Environment, stack: str, objects: Objects, prometheus: Prometheus, prices: PriceList, at: float
) -> Facts:
    """Combine all sources. Without Prometheus its data is missing, and the view says why."""
    measured, why = measure(prometheus)
    status = summarise(env, objects.nodes, objects.pods, objects.claims, objects.queues)
    looked = view(env, status, measured, why)
    firing, pending = _alerts(prometheus) if looked.measured else ((), 0)
    past = last_hour(prometheus, looked, at) if looked.measured else History()
    priced = NodePrices(env, prices)
    return Facts(
        stack=stack,
        at=at,
        status=status,
        view=looked,
        pools=tuple(_pools(env, status, looked, priced)),
        bill=bill(env, prices),
        alerts=firing,
        pending=pending,
        history=past,
        limits=tuple(_limits(objects.node_pools)),
        prices_of={node.name: priced.usd(node) for node in status.nodes},
    )


def _pools(env: Environment, status: ClusterStatus, looked: View, priced: NodePrices) -> Iterator[PoolFacts]:
    placed: dict[str, list[seen.Pod]] = {}
    for pod in status.pods:
        if pod.node and not pod.over:
            placed.setdefault(pod.node, []).append(pod)
    for pool, found in zip(env.pools, status.pools, strict=True):
        mine = tuple(node for node in looked.nodes if node.pool == pool.name)
        yield PoolFacts(found, mine, _money(env, pool, priced, found.nodes, placed, mine))


def _money(
    env: Environment,
    pool: Pool,
    priced: NodePrices,
    nodes: Iterable[seen.Node],
    placed: Mapping[str, Sequence[seen.Pod]],
    drawn: Iterable[Node],
) -> Money:
    by_name = {node.name: node for node in drawn}
    paid: list[float | None] = []
    idle: list[float | None] = []
    unused: list[float | None] = []
    for node in nodes:
        usd, share = priced.usd(node), used_share(env, pool, node, placed.get(node.name, ()))
        paid.append(usd)
        idle.append(None if usd is None or share is None else usd * (1 - share))
        if (live := by_name.get(node.name)) is not None:
            unused.append(_unused(usd, live))
    return Money(total(paid), total(idle), total(unused) if unused else None)


def _unused(usd: float | None, node: Node) -> float | None:
    if usd is None or node.busy is None or not node.gpus:
        return None
    return usd * max(0.0, node.requested - node.busy) / len(node.gpus)


def _alerts(prometheus: Prometheus) -> tuple[tuple[Alert, ...], int]:
    """Firing alerts, the most severe first, and the number of pending ones; only those with a severity."""
    try:
        found = prometheus.alerts()
    except Failure:
        return (), 0
    told = [alert for alert in found if alert.labels.get("severity") in _SEVERITIES]
    firing = [alert for alert in told if alert.state == "firing"]
    firing.sort(key=lambda alert: _SEVERITIES.index(alert.labels["severity"]))
    return tuple(firing), sum(alert.state == "pending" for alert in told)


def _limits(node_pools: Iterable[Json]) -> Iterator[Limit]:
    """Limits of the NodePools that have any; 0 for a resource that is not bought yet."""
    for raw in sorted(node_pools, key=lambda raw: str(raw["metadata"]["name"])):
        has = (raw.get("status") or {}).get("resources") or {}
        for resource, most in sorted((raw["spec"].get("limits") or {}).items()):
            bought = quantity(has.get(resource, "0"))
            yield Limit(raw["metadata"]["name"], resource, bought, quantity(most))
