"""The hosts that a stack declares: their inventory, and the labels and taints of the joined nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import declared as environment
from gpuform.hosts.pool_hosts import PoolHosts
from infra.inventory import inventory
from infra.model.environment import Environment
from infra.plan.sharing import device_plugin_change, pool_labels, pool_taints
from infra.plan.startup import until_proven


@dataclass(frozen=True)
class Declared:
    """A stack of own hosts; ``kubeconfig`` is None before the hosts have joined a cluster."""

    stack: str
    environment: Environment
    inventory: Mapping[str, Any]
    kubeconfig: Path | None
    context: str | None

    @property
    def pools(self) -> list[PoolHosts]:
        env = self.environment
        return [
            PoolHosts(
                pool=pool.name,
                hosts=[host.name for host in pool.hosts or ()],
                labels=pool_labels(env, pool),
                taints=pool_taints(env, pool),
                startup=until_proven(env, pool),
                sharing=device_plugin_change(env, pool),
            )
            for pool in env.pools
        ]


def declared(stack: str, paths: Paths) -> Declared:
    """Read ``Pulumi.STACK.yaml``; raises InputError, also for a stack with another kind of cluster."""
    env = environment(stack, paths)
    if not env.by_ssh:
        raise InputError(
            "cluster.kind",
            f"stack {stack} has {env.cluster.kind}: only own hosts are prepared by this command",
            "name a stack of kind hosts, such as onprem-dev",
        )
    return Declared(
        stack=stack,
        environment=env,
        inventory=inventory(env, paths.root),
        kubeconfig=Path(env.kubeconfig).expanduser() if env.kubeconfig else None,
        context=env.context,
    )
