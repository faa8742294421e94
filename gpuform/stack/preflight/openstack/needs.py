"""How much of each resource an environment needs beyond what its cluster has already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuform.clouds.openstack.api import Json
from gpuform.stack.preflight.openstack.demand import (
    MASTERS,
    Group,
    floating_ips,
    groups,
    load_balancers,
)
from gpuform.stack.preflight.openstack.project import Project
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

Amounts = Iterator[tuple[str, int]]
"""Amount needed by each node group or part of the cluster."""


@dataclass(frozen=True)
class Needs:
    """What an environment lacks; ``most``: elastic pools count at their maximum, else at their minimum.

    A group that has more or larger nodes than declared frees nothing in this count: Magnum may add to one
    group before it removes from another.
    """

    env: Environment
    project: Project

    def unknown(self) -> str:
        """Why nothing can be counted; empty if it can."""
        for group in groups(self.env):
            name = self._flavor_name(group)
            if not name:
                return f"neither the environment nor the template names a flavor for {group.name}"
            if self.project.flavor(name) is None:
                return f"see flavor {name}"
        return ""

    def nodes(self, most: bool, of_one: Callable[[Group, Json], int]) -> Amounts:
        """For every group, what its additional nodes take."""
        for group in groups(self.env):
            wanted = (group.most if most else group.least) * of_one(group, self._flavor(group))
            yield group.name, max(0, wanted - self._has(group, of_one))

    def floating_ips(self, most: bool) -> Amounts:
        template = self._template.get("floating_ip_enabled", True)
        each = [(one.name, one.most if most else one.least, self._count(one)) for one in groups(self.env)]
        for name, wanted, has in each:
            yield name, max(0, floating_ips(self.env, wanted - has, 0, template))
        if self.project.own is None:
            yield "API", floating_ips(self.env, 0, self._balancers, template)

    def load_balancers(self, most: bool) -> Amounts:
        """Load balancers of the masters; those of Services are not counted."""
        if self.project.own is None:
            yield "masters", self._balancers

    def clusters(self, most: bool) -> Amounts:
        if self.project.own is None:
            yield "the cluster", 1

    @property
    def _balancers(self) -> int:
        return load_balancers(self.env, bool(self._template.get("master_lb_enabled")))

    @property
    def _template(self) -> Json:
        named = cluster_of(self.env).template
        return (self.project.template(named) if isinstance(named, str) else None) or {}

    def _flavor_name(self, group: Group) -> str:
        given = "master_flavor_id" if group.name == MASTERS else "flavor_id"
        return group.flavor or str(self._template.get(given) or "")

    def _flavor(self, group: Group) -> Json:
        return self.project.flavor(self._flavor_name(group)) or {}

    def _count(self, group: Group) -> int:
        return sum(int(one.get("node_count") or 0) for one in self._there(group))

    def _has(self, group: Group, of_one: Callable[[Group, Json], int]) -> int:
        """What the group's nodes take now, by their current flavors."""
        flavors = ((one, self.project.flavor(str(one.get("flavor_id")))) for one in self._there(group))
        return sum(
            int(one.get("node_count") or 0) * of_one(group, flavor) for one, flavor in flavors if flavor
        )

    def _there(self, group: Group) -> list[Json]:
        own = self.project.own
        return [one for one in own.node_groups if one["name"] == group.name] if own else []
