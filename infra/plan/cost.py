"""A bill: its lines, the source of its prices, and its JSON form.

Prices come from a price list of one region and day, and from the environment (``cost.prices``). A price in
neither is unknown and listed as such; nothing is estimated. Not in the bill: traffic, logs, snapshots,
storage of workloads, taxes, and any discount but the environment's spot factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.facts import EKS_VERSIONS
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork
from infra.model.base import labels
from infra.model.base.prices import HOURS_PER_MONTH, OtherPrices, PriceList
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.openstack.cluster import OpenstackCluster
from infra.model.pool import allocatable
from infra.model.pool.elastic import CAPACITY_TYPES, Capacity
from infra.model.pool.pool import Pool
from infra.model.workload import claims
from infra.plan import eks, karpenter, magnum, node_groups


@dataclass(frozen=True)
class Line:
    """One item of the bill.

    ``least`` and ``most`` are its count; ``low`` and ``high`` are USD per hour, None if a price is unknown.
    ``units`` is USD per hour of one GPU and of one unit of each resource, on the cheapest machine.
    """

    item: str
    min_count: int
    max_count: int
    low: float | None
    high: float | None
    units: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bill:
    """The lines, and the price list that they use."""

    lines: tuple[Line, ...]
    prices: PriceList
    region: str | None
    budget: float | None = None
    """USD per month; None without a budget."""
    listed: bool = True
    """Whether the price list may cover part of the bill; else only the environment's own prices count."""
    overridden: bool = False
    """Whether the environment has prices of its own."""

    @property
    def price_source(self) -> str:
        """Source of the prices, in words."""
        if self.has_no_price and not self.listed:
            return "no price is known; set your prices in cost.prices"
        if not self.listed:
            return "prices: the environment's own (cost.prices)"
        own = ", and cost.prices" if self.overridden else ""
        return f"list prices of {self.prices.region}, {self.prices.date}{own}"

    @property
    def has_no_price(self) -> bool:
        """Whether no line has a price, so that the sums mean nothing."""
        return all(line.high is None for line in self.lines)

    @property
    def over_budget(self) -> bool:
        """Whether a month with every elastic pool at its limit costs more than the budget."""
        return self.budget is not None and per_month(self.high) > self.budget

    @property
    def low(self) -> float:
        """USD per hour at minimum size; unknown prices count as 0."""
        return sum(line.low or 0.0 for line in self.lines)

    @property
    def high(self) -> float:
        """USD per hour with every elastic pool at its limit; unknown prices count as 0."""
        return sum(line.high or 0.0 for line in self.lines)

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(line.item for line in self.lines if line.high is None)


def per_month(usd_per_hour: float) -> float:
    """USD in a month of 730 hours."""
    return usd_per_hour * HOURS_PER_MONTH


def to_document(bill: Bill) -> dict[str, Any]:
    """The bill as ``--json`` and ``gpuform render`` print it: USD, null if a price is unknown.

    ``prices`` is null if the price list covers nothing in the bill.
    """
    return {
        "currency": "USD",
        "prices": {"region": bill.prices.region, "date": bill.prices.date} if bill.listed else None,
        "region": bill.region,
        "per_hour": {"low": _cents(bill.low), "high": _cents(bill.high)},
        "per_month": {"low": round(per_month(bill.low)), "high": round(per_month(bill.high))},
        "budget_usd_per_month": bill.budget,
        "over_budget": bill.over_budget,
        "unknown": list(bill.unknown),
        "lines": [
            {
                "what": line.item,
                "count": {"least": line.min_count, "most": line.max_count},
                "per_hour": {"low": _cents(line.low), "high": _cents(line.high)},
                "units": {name: _cents(usd) for name, usd in line.units.items()},
                "notes": list(line.notes),
            }
            for line in bill.lines
        ],
    }


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 4)


def bill(env: Environment, prices: PriceList) -> Bill:
    """The bill; a pool with an unknown number of nodes (on an existing cluster) has no line."""
    lines = [line for pool in _pools(env) if (line := _pool_line(env, pool, prices))]
    if isinstance(env.cluster, AwsCluster):
        lines += _aws_lines(env.cluster, prices.beside)
    if isinstance(env.cluster, OpenstackCluster):
        lines += _magnum_lines(env, env.cluster)
    region = env.cluster.region if isinstance(env.cluster, AwsCluster) else None
    budget = env.cost.budget_usd_per_month if env.cost else None
    return Bill(
        tuple(lines), prices, region, budget, has_listed_prices(env), bool(env.cost and env.cost.prices)
    )


def has_listed_prices(env: Environment) -> bool:
    """Whether a price list may cover the environment: on AWS, or with EC2 machines that are not own hosts."""
    machines = (machine for pool in _pools(env) if not pool.hosts for machine in _machines(env, pool))
    return isinstance(env.cluster, AwsCluster) or any(machine.seller == "ec2" for machine in machines)


def _pools(env: Environment) -> Iterator[Pool]:
    if isinstance(env.cluster, AwsCluster):
        yield node_groups.system_pool(env)
    yield from env.pools


def system_pools(env: Environment) -> Iterator[Pool]:
    """What has nodes beside the declared pools; the machine of Magnum's default workers may be unknown."""
    if isinstance(env.cluster, AwsCluster):
        yield node_groups.system_pool(env)
    if isinstance(env.cluster, OpenstackCluster):
        yield Pool.model_construct(name=magnum.DEFAULT_WORKERS, nodes=env.cluster.workers.nodes)


def capacity_type(env: Environment, pool: Pool | None) -> str:
    """The capacity type of a pool's nodes in Karpenter's terms; empty if nodes are not bought by type."""
    return CAPACITY_TYPES[pool.capacity[0]] if pool and isinstance(env.cluster, AwsCluster) else ""


def _pool_line(env: Environment, pool: Pool, prices: PriceList) -> Line | None:
    if pool.hosts:
        return _hosts_line(env, pool)
    machines = _machines(env, pool)
    if (pool.nodes is None and pool.elastic is None) or not machines:
        return None
    hourly = {machine: node_price(env, pool, machine, prices) for machine in machines}
    notes: list[str] = []
    if missing := [machine.name for machine, price in hourly.items() if price is None]:
        notes.append(f"no price of {', '.join(missing)}")
    known = {machine: price for machine, price in hourly.items() if price is not None}
    low = high = 0.0
    fixed_count, max_count = pool.min_nodes, 0 if pool.elastic else pool.max_nodes
    min_count = fixed_count or pool.spare or 0
    spare_costs: list[float] = []
    for capacity in pool.capacity:
        factor = _price_factor(env, capacity, notes)
        counts = {
            machine: allocatable.max_nodes(pool, machine) if pool.elastic else pool.max_nodes
            for machine in machines
        }
        if pool.elastic:
            max_count += max(counts.values())
        costs = [price * factor * counts[machine] for machine, price in known.items()]
        high += max(costs, default=0.0)
        low += min(known.values(), default=0.0) * factor * fixed_count
        spare_costs.append(min(known.values(), default=0.0) * factor * (pool.spare or 0))
    low += min(spare_costs, default=0.0)
    highest = None if missing else high
    cheapest = min(known.items(), key=lambda item: item[1], default=None)
    units = _unit_prices(pool, cheapest[0].gpus, cheapest[1]) if cheapest else {}
    lowest = None if missing and fixed_count else low
    return Line(f"pool {pool.name}", min_count, max_count, lowest, highest, units, tuple(notes))


def _hosts_line(env: Environment, pool: Pool) -> Line:
    count, price = len(pool.hosts or ()), (env.cost.prices if env.cost else {}).get(pool.name)
    if price is None:
        return Line(f"pool {pool.name}", count, count, None, None, notes=(f"no price of {pool.name}",))
    units = _unit_prices(pool, pool.gpu_count, price)
    return Line(f"pool {pool.name}", count, count, count * price, count * price, units)


def _machines(env: Environment, pool: Pool) -> tuple[Machine, ...]:
    if isinstance(env.cluster, AwsCluster):
        return pool.machines
    return (pool.node_machine,) if pool.node_machine else ()


def machine_price(env: Environment, pool: Pool, machine: Machine, prices: PriceList) -> float | None:
    """USD per hour of one machine on demand, without volumes; None if unknown."""
    declared = env.cost.prices if env.cost else {}
    price = declared.get(pool.name, declared.get(machine.name))
    if price is None:
        price = machine.usd_per_hour
    if price is None and machine.seller == "ec2" and not pool.hosts:
        return prices.usd_per_hour.get(machine.name)
    return price


def node_price(env: Environment, pool: Pool, machine: Machine, prices: PriceList) -> float | None:
    """USD per hour of one node with its volumes; None if unknown."""
    price = machine_price(env, pool, machine, prices)
    if price is None or not isinstance(env.cluster, AwsCluster):
        return price
    return price + _volume_price(pool, prices.beside)


def first_price(env: Environment, pool: Pool, machine: Machine, prices: PriceList) -> float | None:
    """`node_price` for the pool's first capacity type."""
    price = node_price(env, pool, machine, prices)
    return None if price is None else price * _price_factor(env, pool.capacity[0], [])


def _volume_price(pool: Pool, beside: OtherPrices) -> float:
    disk = pool.aws_settings.disk
    gib = disk.size_gib + (karpenter.BOTTLEROCKET_ROOT_GIB if pool.image.data_device else 0)
    month = gib * beside.gp3_gib_month
    month += max(0, disk.iops - 3000) * beside.gp3_iops_month
    month += max(0, disk.throughput - 125) * beside.gp3_mibps_month
    return month / HOURS_PER_MONTH


def _price_factor(env: Environment, capacity: Capacity, notes: list[str]) -> float:
    if capacity == "reserved":
        notes.append("the reservation is paid for whether it is used or not")
    if capacity == "spot":
        if env.cost and env.cost.spot_factor is not None:
            return env.cost.spot_factor
        notes.append("spot counted at the on-demand price (no cost.spot_factor)")
    return 1.0


def _unit_prices(pool: Pool, gpus: int, node: float) -> dict[str, float]:
    """USD per hour of one GPU and of one unit of each resource; a slice costs its share of compute slices.

    ``node`` is the price of a node with ``gpus`` GPUs.
    """
    if not gpus:
        return {}
    gpu = node / gpus
    prices = {"GPU": gpu}
    for resource, part in allocatable.unit_parts(pool).items():
        if resource != labels.NVIDIA_GPU or part != 1:
            prices[resource] = gpu * part
    prices |= {profile: gpu * part for profile, part in claims.claimed_parts(pool).items()}
    return prices


def _aws_lines(cluster: AwsCluster, beside: OtherPrices) -> Iterator[Line]:
    zones = len(cluster.network.zones)
    endpoints = len(eks.interface_endpoints(cluster)) * zones
    yield _control_plane_line(cluster, beside)
    if isinstance(cluster.network, ExistingNetwork):
        return  # its owner pays for gateways and endpoints
    gateways = zones if cluster.network.nat == "per_zone" else 1
    for item, count, price in (
        ("NAT gateways", gateways, beside.nat_gateway),
        ("VPC endpoints", endpoints, beside.endpoint),
    ):
        yield Line(item, count, count, count * price, count * price)


def _control_plane_line(cluster: AwsCluster, beside: OtherPrices) -> Line:
    """The surcharge of extended support counts in full at most, and at least if it was due already.

    "Already" is the day on which the calendar was read, so that an environment has the same bill every day.
    """
    price, version = beside.control_plane, EKS_VERSIONS[cluster.version]
    if cluster.support == "standard":
        return Line("control plane", 1, 1, price, price)
    total, ends = price + beside.extended_support, version.standard
    start = f"from {ends} on" if ends else "from a day that is not known yet"
    note = f"{beside.extended_support:.2f} of it for extended support, {start}"
    due = ends is not None and ends <= version.date
    return Line("control plane", 1, 1, total if due else price, total, notes=(note,))


def _magnum_lines(env: Environment, cluster: OpenstackCluster) -> Iterator[Line]:
    """Masters and default workers; a flavor that only the template names has no price."""
    declared = env.cost.prices if env.cost else {}
    for item, group in (("masters", cluster.masters), ("default workers", cluster.workers)):
        count, price = group.nodes, declared.get(group.flavor or "")
        if price is None:
            yield Line(item, count, count, None, None, notes=(f"no price of {group.flavor or 'its flavor'}",))
        else:
            yield Line(item, count, count, count * price, count * price)
