"""The hosts that a stack declares: inventory, labels and taints of joined nodes, and the hosts' state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.hosts.events import HostResult, Outcome
from gpuform.hosts.listing import PoolHosts
from infra.inventory import inventory
from infra.model.environment import Environment
from infra.plan.sharing import device_plugin_change, pool_labels, pool_taints
from infra.plan.startup import startup_change


@dataclass(frozen=True)
class DeclaredHosts:
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
                startup=startup_change(env, pool),
                sharing=device_plugin_change(env, pool),
            )
            for pool in env.pools
        ]


def load_hosts(stack: str, paths: Paths) -> DeclaredHosts:
    """Read ``Pulumi.STACK.yaml``; raises InputError, also for a stack with another kind of cluster."""
    env = load_environment(stack, paths)
    if not env.uses_ssh:
        raise InputError(
            "cluster.kind",
            f"stack {stack} has {env.cluster.kind}: only own hosts are prepared by this command",
            "name a stack of kind hosts, such as onprem-dev",
        )
    return DeclaredHosts(
        stack=stack,
        environment=env,
        inventory=inventory(env, paths.root),
        kubeconfig=Path(env.kubeconfig).expanduser() if env.kubeconfig else None,
        context=env.context,
    )


def status_rows(hosts: DeclaredHosts, outcome: Outcome, nodes: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row per requested host, as ``gpuform hosts status --json`` documents it.

    ``nodes`` is, by host, ``ready``, ``not ready`` or ``not joined``, ``-`` without a kubeconfig, ``unknown``
    if the cluster does not answer.
    """
    hostvars = hosts.inventory["_meta"]["hostvars"]
    return [_status_row(name, result, hostvars[name], nodes[name]) for name, result in outcome.hosts.items()]


def _status_row(name: str, result: HostResult, variables: Mapping[str, Any], node: str) -> dict[str, Any]:
    facts = result.facts
    gpu_lines = [line.rpartition(", ") for line in facts.get("gpus") or []]
    versions = sorted({version for _, _, version in gpu_lines})
    return {
        "host": name,
        "pool": variables.get("gpuform_pool") or "",
        "reached": result.ok,
        "message": result.message or _driver_message(facts, variables),
        "system": facts.get("system") or "",
        "kernel": facts.get("kernel") or "",
        "driver": ", ".join(versions),
        "gpus": [product for product, _, _ in gpu_lines],
        "toolkit": facts.get("toolkit") or "",
        "declared": {
            "driver": variables.get("nvidia_driver_version") or "",
            "toolkit": variables.get("nvidia_container_toolkit_version") or "",
        },
        "node": node,
    }


def _driver_message(facts: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    if facts.get("gpus") or not variables.get("nvidia_driver_version"):
        return ""
    return str(facts.get("driver_says") or "nvidia-smi is not installed")
