"""All data of a stack's report, read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.checkout.errors import Failure
from gpuform.usage import nodes as cluster
from gpuform.usage.cluster_objects import Json, LiveObjects
from gpuform.usage.node_prices import NodePrices, total, used_share
from gpuform.usage.prometheus import Alert, Prometheus
from gpuform.usage.status import ClusterStatus, PoolStatus, injected_faults, summarise_status
from gpuform.usage.top.measured import History, last_hour
from gpuform.usage.top.read import build_view, read_metrics
from gpuform.usage.top.view import Node, View
from infra.model.base.prices import PriceList
from infra.model.base.quantities import quantity
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan.cost import Bill, bill

_SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True)
class HourlyCost:
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
    money: HourlyCost

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
    bought: float
    maximum: float


@dataclass(frozen=True)
class Facts:
    """The whole report; ``at`` in Unix seconds. ``alerts`` are firing; ``injected``: all faults by node."""

    stack: str
    at: float
    status: ClusterStatus
    view: View
    pools: tuple[PoolFacts, ...]
    bill: Bill
    alerts: tuple[Alert, ...] = ()
    pending: tuple[Alert, ...] = ()
    injected: Mapping[str, str] = field(default_factory=dict)
    history: History = History()  # noqa: RUF009  (frozen)
    limits: tuple[Limit, ...] = ()
    prices_of: Mapping[str, float | None] | None = None
    """USD per hour of each node, by name."""


def gather_facts(
    env: Environment, stack: str, objects: LiveObjects, prometheus: Prometheus, prices: PriceList, at: float
) -> Facts:
    """Combine all sources. Without Prometheus its data is missing, and the view says why."""
    metrics, why = read_metrics(prometheus)
    status = summarise_status(env, objects.nodes, objects.pods, objects.claims, objects.queues)
    gpu_view = build_view(env, status, metrics, why)
    firing, pending = _read_alerts(prometheus) if gpu_view.measured else ((), ())
    past = last_hour(prometheus, gpu_view, at) if gpu_view.measured else History()
    node_prices = NodePrices(env, prices)
    return Facts(
        stack=stack,
        at=at,
        status=status,
        view=gpu_view,
        pools=tuple(_pool_facts(env, status, gpu_view, node_prices)),
        bill=bill(env, prices),
        alerts=firing,
        pending=pending,
        injected=injected_faults(objects.nodes, every=True),
        history=past,
        limits=tuple(_parse_limits(objects.node_pools)),
        prices_of={node.name: node_prices.usd_per_hour(node) for node in status.nodes},
    )


def _pool_facts(
    env: Environment, current: ClusterStatus, view: View, prices: NodePrices
) -> Iterator[PoolFacts]:
    placed: dict[str, list[cluster.Pod]] = {}
    for pod in current.pods:
        if pod.node and not pod.has_ended:
            placed.setdefault(pod.node, []).append(pod)
    for pool, status in zip(env.pools, current.pools, strict=True):
        nodes = tuple(node for node in view.nodes if node.pool == pool.name)
        yield PoolFacts(status, nodes, _hourly_cost(env, pool, prices, status.nodes, placed, nodes))


def _hourly_cost(
    env: Environment,
    pool: Pool,
    prices: NodePrices,
    nodes: Iterable[cluster.Node],
    placed: Mapping[str, Sequence[cluster.Pod]],
    gpu_nodes: Iterable[Node],
) -> HourlyCost:
    by_name = {node.name: node for node in gpu_nodes}
    paid: list[float | None] = []
    idle: list[float | None] = []
    unused: list[float | None] = []
    for node in nodes:
        usd, share = prices.usd_per_hour(node), used_share(env, pool, node, placed.get(node.name, ()))
        paid.append(usd)
        idle.append(None if usd is None or share is None else usd * (1 - share))
        if (gpu_node := by_name.get(node.name)) is not None:
            unused.append(_unused_usd(usd, gpu_node))
    return HourlyCost(total(paid), total(idle), total(unused) if unused else None)


def _unused_usd(usd: float | None, node: Node) -> float | None:
    if usd is None or node.busy is None or not node.gpus:
        return None
    return usd * max(0.0, node.requested - node.busy) / len(node.gpus)


def _read_alerts(prometheus: Prometheus) -> tuple[tuple[Alert, ...], tuple[Alert, ...]]:
    """Firing and pending alerts, the most severe first; only those with a severity."""
    try:
        alerts = prometheus.alerts()
    except Failure:
        return (), ()
    rated = [alert for alert in alerts if alert.labels.get("severity") in _SEVERITIES]
    rated.sort(key=lambda alert: _SEVERITIES.index(alert.labels["severity"]))
    return tuple(a for a in rated if a.state == "firing"), tuple(a for a in rated if a.state == "pending")


def _parse_limits(node_pools: Iterable[Json]) -> Iterator[Limit]:
    """Limits of the NodePools that have any; 0 for a resource that is not bought yet."""
    for node_pool in sorted(node_pools, key=lambda node_pool: str(node_pool["metadata"]["name"])):
        has = (node_pool.get("status") or {}).get("resources") or {}
        for resource, maximum in sorted((node_pool["spec"].get("limits") or {}).items()):
            bought = quantity(has.get(resource, "0"))
            yield Limit(node_pool["metadata"]["name"], resource, bought, quantity(maximum))
