"""Node groups that grow and shrink: bounds, what is known of them while they are empty, a node of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.model.environment import Environment
from infra.plan import magnum, played_groups
from infra.plan.nodes import PODS_PER_NODE

_GIB = 2.0**30

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """``label`` is what the group's nodes are known by; ``known_when_empty`` is what its flavor has."""

    name: str
    label: tuple[str, str]
    least: int
    most: int
    known_when_empty: Mapping[str, float] = field(default_factory=dict)
    labels_when_empty: Mapping[str, str] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    """A node of it as it joins; its name is another each time."""

    def has(self, node: Json) -> bool:
        """Whether a node is of this group."""
        return bool(node["metadata"].get("labels", {}).get(self.label[0]) == self.label[1])

    def node(self, name: str) -> dict[str, Any]:
        """The manifest of a node that joins."""
        return played_groups.named(self.model, name)


def groups(env: Environment) -> tuple[Group, ...]:
    """The groups of an environment that grow and shrink: those of elastic pools on OpenStack."""
    if env.cluster.kind != "openstack":
        return ()
    found = []
    for pool in env.pools:
        if pool.elastic is None:
            continue
        ((key, value),) = magnum.selector(env, pool).items()
        machine = pool.flavor
        assert machine is not None  # checked when the environment was parsed
        found.append(
            Group(
                name=pool.name,
                label=(key, value),
                least=pool.least,
                most=pool.most,
                known_when_empty={
                    "cpu": machine.vcpu,
                    "memory": machine.memory * _GIB,
                    "pods": PODS_PER_NODE,
                },
                labels_when_empty={**magnum.node_group(env, pool).get("labels", {}), key: value},
                model=played_groups.joining(env, pool, pool.name),
            )
        )
    return tuple(found)
