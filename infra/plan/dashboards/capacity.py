"""Capacity: load, requests and limits against allocatable resources, and what still fits.

Bumble describes such a pair: one dashboard for planning, and one (devices) for the GPUs themselves.
"""

from __future__ import annotations

from infra.model.environment import Environment
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
        sections.append(Section("Pools that grow", (_limits(),)))
    if any(pool.elastic for pool in env.pools) and env.cluster.kind == "openstack":
        sections.append(Section("Pools that grow", (_groups(),)))
    return Board(
        "capacity",
        "GPU capacity",
        "Load, requests and limits beside what the nodes offer: is there room, and for what.",
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
                description="Offered and asked for by nobody, in whole GPUs; their parts may lie on "
                "many nodes.",
                expr=f"sum(gpuform:pool:gpus_allocatable{pool}) - sum(gpuform:pool:gpus_requested{pool})",
                unit="short",
                width=6,
            ),
            Stat(
                title="Asked for",
                description="Part of the offered GPUs. From nine tenths on, new nodes take longer "
                "than the room lasts.",
                expr=f"sum(gpuform:pool:gpus_requested{pool}) / sum(gpuform:pool:gpus_allocatable{pool})",
                unit="percentunit",
                steps=((0.8, "orange"), (0.95, "red")),
                width=6,
            ),
            Stat(
                title="Pods that wait for a GPU",
                description="Pods that no node has room for, in all pools: they have no node that "
                "would say which.",
                expr="count(count by (namespace, pod) (gpuform:pod:pending_reason)) or vector(0)",
                unit="short",
                steps=((1, "orange"),),
                width=6,
            ),
            Stat(
                title="Most free on one node",
                description="In whole GPUs: no pod can have more, for none can be spread over nodes.",
                expr=f"max(sum by (node) ({_FREE} * on (pool, resource) group_left () gpuform:unit:gpus))",
                unit="short",
                width=6,
            ),
        ),
    )


def _load() -> Section:
    kinds = ("allocatable", "offered"), ("requested", "requests"), ("limits", "limits")
    panels: list[Panel] = [
        Series(
            title="Load, requests and offer in GPUs",
            description="Load is what computes. Requests far above it: GPUs are held, not used.",
            queries=tuple(
                Query(f"sum by (pool) (gpuform:pool:gpus_{what}{{{POOL}}})", f"{{{{pool}}}} {name}")
                for what, name in (("used", "load"), ("requested", "requests"), ("allocatable", "offered"))
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
            title=f"{title} asked for by pool",
            description="Part of what the pool's nodes offer. Full before the GPUs are: those GPUs "
            "cannot be had.",
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
    "allocatable": "What the nodes offer of each resource, in its own units: GPUs, slices, shares.",
    "requested": "What pods on nodes have asked for of each resource.",
    "limits": "What they may take. Of GPUs it equals the requests: a GPU cannot be promised twice.",
}


def _fits() -> Section:
    def each(header: str, what: str) -> Column:
        return Column(header, f"sum by (pool, resource) (gpuform:resource:{what}{_HERE})", "short")

    # A node with MIG slices still reports the whole-GPU resource, as 0.
    offered = f"(sum by (pool, resource) (gpuform:resource:allocatable{_HERE}) > 0)"
    table = Table(
        title="What still fits",
        description="Free in all, and the most that is free on one node. Far apart: the pool is fragmented.",
        keys={"pool": "Pool", "resource": "Resource"},
        columns=(
            Column("Offered", offered, "short"),
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
        description="Nodes that are there, with GPUs or without.",
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
        title="Pods that wait",
        description="What each asks for and why it has no node: fragmented is room that lies on too "
        "many nodes, "
        "too_large more than any node has, limit a pool that may not grow, not_ready nodes that are "
        "on their way.",
        keys={"namespace": "Namespace", "pod": "Pod", "resource": "Resource", "reason": "Reason"},
        columns=(Column("Asks for", f"max by ({keys}) (gpuform:pod:pending_reason)", "short"),),
        links={},
        sort="Asks for",
        width=14,
    )
    course = Series(
        title="Pods that wait by reason",
        description="For how long it has been so, and of which kind it is.",
        queries=(Query("count by (reason) (gpuform:pod:pending_reason)", "{{reason}}"),),
        unit="short",
        stacked=True,
        width=10,
    )
    return Section("Waiting", (table, course))


def _quotas() -> Table:
    def of(kind: str) -> str:
        return (
            f'max by (namespace, resource) (kube_resourcequota{{type="{kind}", resource=~".*nvidia.com/.+"}})'
        )

    return Table(
        title="Quotas of namespaces",
        description="What each namespace may ask for, and has.",
        keys={"namespace": "Namespace", "resource": "Resource"},
        columns=(
            Column("Has", of("used"), "short"),
            Column("May have", of("hard"), "short"),
            Column("Used of it", f"{of('used')} / ({of('hard')} > 0)", "percentunit", bar=True),
        ),
        links={"namespace": ("Sharing in the namespace", to("sharing", "namespace"))},
        sort="Used of it",
    )


def _limits() -> Table:
    def of(what: str) -> str:
        return f"max by (nodepool, resource_type) (karpenter_nodepools_{what})"

    return Table(
        title="Limits of Karpenter's pools",
        description="What each may grow to. At its limit a pool buys nothing more, and pods wait.",
        keys={"nodepool": "NodePool", "resource_type": "Resource"},
        columns=(
            Column("Has", of("usage"), "short"),
            Column("May have", of("limit"), "short"),
            Column("Used of it", f"{of('usage')} / ({of('limit')} > 0)", "percentunit", bar=True),
            Column(
                "Nodes left", "max by (nodepool, resource_type) (gpuform:nodepool:nodes_left)", "short", _NONE
            ),
        ),
        links={},
        sort="Used of it",
    )


def _groups() -> Table:
    def of(metric: str) -> str:
        return f"max by (pool) ({metric}{{{POOL}}})"

    has = f"count by (pool) (gpuform:node:info{{{POOL}}})"
    return Table(
        title="Limits of elastic pools",
        description="How many nodes each may grow to. At its limit a pool gets no more, and pods wait.",
        keys={"pool": "Pool"},
        columns=(
            Column("Has", has, "short"),
            Column("May have", of("gpuform:nodepool:nodes_most"), "short"),
            Column("Used of it", f"{has} / {of('gpuform:nodepool:nodes_most')}", "percentunit", bar=True),
            Column("Nodes left", of("gpuform:nodepool:nodes_left"), "short", _NONE),
        ),
        links={},
        sort="Used of it",
    )


_NONE = ((0, "red"), (1, "green"))
