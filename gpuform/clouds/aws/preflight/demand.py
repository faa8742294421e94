"""The most that a stack may buy: each pool, in each of its capacity types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.model.elastic import SURGE, Capacity
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.model.pool import Pool
from infra.plan import node_groups
from infra.plan.cost import limited, most_nodes


@dataclass(frozen=True)
class Purchase:
    """Nodes of one pool, bought as one capacity type, of any of these machines."""

    environment: Environment
    pool: Pool
    capacity: Capacity
    machines: tuple[Machine, ...]

    @property
    def fixed(self) -> bool:
        """Whether the number of nodes is fixed, so that they always run."""
        return self.pool.nodes is not None

    @property
    def nodes(self) -> int:
        """The most nodes, if all were of the machine type that allows the most."""
        return max(self._count(machine) for machine in self.machines)

    @property
    def vcpu(self) -> int:
        """Upper bound of the vCPUs, for any mix of the machines within the limits.

        Does not count the extra nodes of a managed node group while it is updated.
        """
        if self.fixed or len(self.machines) == 1:
            return max(self._count(machine) * machine.vcpu for machine in self.machines)
        assert self.pool.elastic is not None
        able = [machine for machine in self.machines if self._count(machine)]
        sizes = [(machine.vcpu, limited(self.environment, self.pool, machine)) for machine in able]
        return min(
            max((limit * vcpu // each[key] for vcpu, each in sizes), default=0)
            for key, limit in self.pool.elastic.max.items()
        )

    def _count(self, machine: Machine) -> int:
        if self.pool.nodes is None:
            return most_nodes(self.environment, self.pool, machine)
        return self.pool.nodes + (SURGE if self.pool.by_claim else 0)

    def of(self, machines: Sequence[Machine]) -> Purchase:
        """The same purchase, limited to these machines."""
        return Purchase(self.environment, self.pool, self.capacity, tuple(machines))


def pools(env: Environment) -> tuple[Pool, ...]:
    return (node_groups.system_pool(env), *env.pools)


def purchases(env: Environment) -> Iterator[Purchase]:
    for pool in pools(env):
        for capacity in pool.capacity:
            yield Purchase(env, pool, capacity, pool.machines)
