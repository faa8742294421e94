"""The tables that people read. Each takes what ``--json`` prints and adds nothing to it."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from gpuform.status import ClusterStatus, NodeStatus, PodStatus

SIMULATED = (
    "simulated here: the nodes (kwok) and NVIDIA's operands (gpuform.simulator). "
    "Real: etcd, kube-apiserver, scheduler, controllers, helm, Pulumi engine."
)
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "gpu-operator")


def pools(current: ClusterStatus) -> Table:
    """One line per pool: what it is, and what each of its nodes offers and has in use."""
    table = _table("Pools", "pool", "machine", "sharing", "nodes", "each node offers", "in use")
    for pool in current.pools:
        ready = sum(node.ready for node in pool.nodes)
        table.add_row(
            pool.name,
            pool.machine,
            pool.sharing,
            Text(f"{ready}/{len(pool.nodes)}", style="" if ready == len(pool.nodes) else "red"),
            _offers(pool.nodes),
            _in_use(pool.nodes),
        )
    return table


def pods(current: ClusterStatus, namespaces: tuple[str, ...] = SYSTEM_NAMESPACES) -> Table:
    """One line per pod outside the system namespaces: what it asked for and where it landed."""
    table = _table("Pods", "namespace", "pod", "asks for", "node", "phase")
    for pod in current.pods:
        if pod.namespace not in namespaces:
            table.add_row(
                pod.namespace, pod.name, counts(pod.requests) or "no GPU", pod.node or "-", _phase(pod)
            )
    return table


def counts(resources: Mapping[str, int]) -> str:
    """Resources and how many, without the vendor's prefix: ``gpu.shared 4``."""
    return ", ".join(f"{key.removeprefix('nvidia.com/')} {n}" for key, n in sorted(resources.items()))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, header_style="dim", overflow="fold")
    return table


def _offers(nodes: tuple[NodeStatus, ...]) -> str:
    """What the nodes offer, each kind of node once."""
    kinds = dict.fromkeys(counts(node.allocatable) or "no GPU" for node in nodes)
    return "\n".join(kinds) or "-"


def _in_use(nodes: tuple[NodeStatus, ...]) -> str:
    total: dict[str, int] = {}
    for node in nodes:
        for key, count in node.used.items():
            total[key] = total.get(key, 0) + count
    return counts(total) or "-"


def _phase(pod: PodStatus) -> Text:
    fine = pod.phase in ("Running", "Succeeded") and not pod.reason
    return Text(pod.phase if not pod.reason else f"{pod.phase}: {pod.reason}", style="green" if fine else "red")
