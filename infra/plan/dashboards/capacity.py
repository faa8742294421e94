"""Capacity: load, requests and limits against allocatable resources, and what still fits.

Bumble describes such a pair: one dashboard for planning, and one (devices) for the GPUs themselves.
"""

from __future__ import annotations

from infra.model.environment import Environment
from infra.plan.dashboards import serving
from infra.plan.dashboards.spec import (
    NODE,
    POOL,
    Board,
    Column,
    Panel,
    Query,
    Section,
    Series,
    Stat,
    Table,
    to,
)

_GPUS = 'resource=~"nvidia_com_.+"'
_HERE = f"{{{POOL}, {NODE}, {_GPUS}}}"
_FREE = f"gpuform:resource:free{_HERE}"


def board(env: Environment) -> Board:
    """The dashboard; quotas and limits of elastic pools only if there are any."""
    sections = [_room(), _load(), _fits(), _waiting()]
    if env.namespaces:
        sections.append(Section("Quotas", (_quotas(),)))
    if any(env.by_karpenter(pool) for pool in env.pools):
        sections.append(Section("Elastic pools", (_limits(),)))
    if any(pool.elastic for pool in env.pools) and env.cluster.kind == "openstack":
        sections.append(Section("Elastic pools", (_groups(),)))
    if serves := serving.panels(env):
        sections.append(Section("Queues and serving", serves))
    return Board(
        "capacity",
        "GPU capacity",
        "Load, requests and limits against allocatable resources: is there room, and for what.",
        tuple(sections),
        hours=24,
    )


def _room() -> Section:
    pool = f"{{{POOL}}}"
    return Section(
        "Room",
        (
            Stat(
                title="GPUs free",
                description="Allocatable and not requested, in whole GPUs; may be spread over many nodes.",
                expr=f"sum(gpuform:pool:gpus_allocatable{pool}) - sum(gpuform:pool:gpus_requested{pool})",
                unit="short",
                width=6,
            ),
            Stat(
                title="Requested",
                description="Part of the allocatable GPUs. Above 90 %, new nodes take longer to come than "
                "the free GPUs last.",
                expr=f"sum(gpuform:pool:gpus_requested{pool}) / sum(gpuform:pool:gpus_allocatable{pool})",
                unit="percentunit",
                steps=((0.8, "orange"), (0.95, "red")),
                width=6,
            ),
            Stat(
                title="Pods pending for a GPU",
                description="Pods that fit on no node, for all pools: a pod without a node has no pool.",
                expr="count(count by (namespace, pod) (gpuform:pod:pending_reason)) or vector(0)",
                unit="short",
                steps=((1, "orange"),),
                width=6,
            ),
            Stat(
                title="Most free on one node",
                description="In whole GPUs. The most that one pod can get: a pod cannot span nodes.",
                expr=f"max(sum by (node) ({_FREE} * on (pool, resource) group_left () gpuform:unit:gpus))",
                unit="short",
                width=6,
            ),
        ),
    )


def _load() -> Section:
    kinds = ("allocatable", "allocatable"), ("requested", "requests"), ("limits", "limits")
    panels: list[Panel] = [
        Series(
            title="Load, requests and allocatable GPUs",
            description="Load is GPUs in use. Requests far above the load: GPUs are allocated but idle.",
            queries=tuple(
                Query(f"sum by (pool) (gpuform:pool:gpus_{what}{{{POOL}}})", f"{{{{pool}}}} {name}")
                for what, name in (
                    ("used", "load"),
                    ("requested", "requests"),
                    ("allocatable", "allocatable"),
                )
            ),
            unit="short",
            width=24,
        )
    ]
    panels += [
        Series(
            title=f"{name.capitalize()} by resource",
            description=_SAID[what],
            queries=(Query(f"sum by (resource) (gpuform:resource:{what}{_HERE})", "{{resource}}"),),
            unit="short",
            stacked=True,
            width=8,
        )
        for what, name in kinds
    ]
    panels += [
        Series(
            title=f"{title} requested by pool",
            description="Part of what is allocatable in the pool. If this is full before the GPUs are, the "
            "remaining GPUs cannot be used.",
            queries=(
                Query(
                    f"sum by (pool) (gpuform:resource:requested{beside}) "
                    f"/ sum by (pool) (gpuform:resource:allocatable{beside})",
                    "{{pool}}",
                ),
            ),
            unit="percentunit",
            most=1,
            steps=((0.9, "orange"),),
        )
        for title, beside in (
            (title, f'{{{POOL}, {NODE}, resource="{name}"}}')
            for title, name in (("CPU", "cpu"), ("Memory", "memory"))
        )
    ]
    return Section("Load, requests, limits", tuple(panels))


_SAID = {
    "allocatable": "Allocatable units of each resource: GPUs, slices, shares.",
    "requested": "Units of each resource that pods on nodes request.",
    "limits": "Limits of these pods. For GPUs equal to the requests: GPUs cannot be overcommitted.",
}


def _fits() -> Section:
    def each(header: str, what: str) -> Column:
        return Column(header, f"sum by (pool, resource) (gpuform:resource:{what}{_HERE})", "short")

    # A node with MIG slices still reports the whole-GPU resource, as 0.
    offered = f"(sum by (pool, resource) (gpuform:resource:allocatable{_HERE}) > 0)"
    table = Table(
        title="What still fits",
        description="Free in total, and the most on one node. If they are far apart, the pool is fragmented.",
        keys={"pool": "Pool", "resource": "Resource"},
        columns=(
            Column("Allocatable", offered, "short"),
            each("Requests", "requested"),
            each("Limits", "limits"),
            Column("Free", f"sum by (pool, resource) ({_FREE}) and {offered}", "short"),
            Column("Most on one node", f"max by (pool, resource) ({_FREE}) and {offered}", "short"),
        ),
        links={"pool": ("GPUs of the pool", to("devices", "pool"))},
        sort="Free",
        width=14,
        height=9,
    )
    nodes = Series(
        title="Nodes by pool",
        description="Current nodes, with and without GPUs.",
        queries=(Query(f"count by (pool) (gpuform:node:info{{{POOL}, {NODE}}})", "{{pool}}"),),
        unit="short",
        stacked=True,
        width=10,
        height=9,
    )
    return Section("Fit", (table, nodes))


def _waiting() -> Section:
    keys = "namespace, pod, resource, reason"
    table = Table(
        title="Pending pods",
        description="What each pod requests and why it has no node. fragmented: free GPUs are spread over "
        "too many nodes; too_large: more than any node has; limit: the pool is at its limit; not_ready: "
        "nodes are starting.",
        keys={"namespace": "Namespace", "pod": "Pod", "resource": "Resource", "reason": "Reason"},
        columns=(Column("Requests", f"max by ({keys}) (gpuform:pod:pending_reason)", "short"),),
        links={},
        sort="Requests",
        width=14,
    )
    course = Series(
        title="Pending pods by reason",
        description="Number of pending pods over time.",
        queries=(Query("count by (reason) (gpuform:pod:pending_reason)", "{{reason}}"),),
        unit="short",
        stacked=True,
        width=10,
    )
    return Section("Pending", (table, course))


def _quotas() -> Table:
    def of(kind: str) -> str:
        return (
            f'max by (namespace, resource) (kube_resourcequota{{type="{kind}", resource=~".*nvidia.com/.+"}})'
        )

    return Table(
        title="Quotas of namespaces",
        description="GPU quota of each namespace, and how much of it is used.",
        keys={"namespace": "Namespace", "resource": "Resource"},
        columns=(
            Column("Used", of("used"), "short"),
            Column("Limit", of("hard"), "short"),
            Column("Used of limit", f"{of('used')} / ({of('hard')} > 0)", "percentunit", bar=True),
        ),
        links={"namespace": ("Sharing in the namespace", to("sharing", "namespace"))},
        sort="Used of limit",
    )


def _limits() -> Table:
    def of(what: str) -> str:
        return f"max by (nodepool, resource_type) (karpenter_nodepools_{what})"

    return Table(
        title="Limits of Karpenter's pools",
        description="Maximum size of each NodePool. At its limit it adds no nodes, and pods stay pending.",
        keys={"nodepool": "NodePool", "resource_type": "Resource"},
        columns=(
            Column("Used", of("usage"), "short"),
            Column("Limit", of("limit"), "short"),
            Column("Used of limit", f"{of('usage')} / ({of('limit')} > 0)", "percentunit", bar=True),
            Column(
                "Nodes left", "max by (nodepool, resource_type) (gpuform:nodepool:nodes_left)", "short", _NONE
            ),
        ),
        links={},
        sort="Used of limit",
    )


def _groups() -> Table:
    def of(metric: str) -> str:
        return f"max by (pool) ({metric}{{{POOL}}})"

    has = f"count by (pool) (gpuform:node:info{{{POOL}}})"
    return Table(
        title="Limits of elastic pools",
        description="Maximum number of nodes of each pool. At its limit pods stay pending.",
        keys={"pool": "Pool"},
        columns=(
            Column("Used", has, "short"),
            Column("Limit", of("gpuform:nodepool:nodes_most"), "short"),
            Column("Used of limit", f"{has} / {of('gpuform:nodepool:nodes_most')}", "percentunit", bar=True),
            Column("Nodes left", of("gpuform:nodepool:nodes_left"), "short", _NONE),
        ),
        links={},
        sort="Used of limit",
    )


_NONE = ((0, "red"), (1, "green"))
