"""Sharing: which pods share GPUs, what each requested, and its estimated use.

NVIDIA's exporter does not know the pods of a GPU shared by time-slicing or MPS: a GPU's use is divided among
its pods by their requests (``gpuform:pod:gpus_used``). Which pod really used the GPU cannot be seen.
"""

from __future__ import annotations

from infra.plan.dashboards.spec import (
    NAMESPACE,
    POOL,
    Bars,
    Board,
    Column,
    Query,
    Section,
    Series,
    Stat,
    Table,
    highest,
    to,
)

_POD = f"{{{POOL}, {NAMESPACE}}}"
_KEYS = "node, pool, sharing, resource, namespace, pod"
_DEVICES = "gpuform:device:memory_{}_bytes{{" + POOL + "}}"
_ASKED = f"gpuform:pod:gpus_requested{_POD}"


def board() -> Board:
    """The dashboard, the same for every environment."""
    return Board(
        "sharing",
        "GPU sharing",
        "Which pods share GPUs, what they request, and how full the GPUs are.",
        (_now(), _who(), _course()),
    )


def _now() -> Section:
    return Section(
        "Now",
        (
            Stat(
                title="Pods with GPUs",
                description="Pods with a GPU, a slice or a share.",
                expr=f"count(count by (namespace, pod) ({_ASKED}))",
                unit="short",
                width=6,
            ),
            Stat(
                title="GPUs requested",
                description="In whole GPUs: one share of four is a quarter.",
                expr=f"sum({_ASKED})",
                unit="short",
                width=6,
            ),
            Stat(
                title="Busy of requested",
                description="A low value means that GPUs are allocated but idle: share them more.",
                expr=f"sum(gpuform:pod:gpus_used{_POD}) / sum({_ASKED})",
                unit="percentunit",
                width=6,
            ),
            Stat(
                title="Fullest GPU or slice",
                description="Part of its memory in use. On a time-sliced GPU, one pod that takes all of it "
                "makes the others fail; a full slice affects only its own pods.",
                expr=f"max({_DEVICES.format('used')} / {_DEVICES.format('total')})",
                unit="percentunit",
                steps=((0.9, "red"),),
                width=6,
            ),
        ),
    )


def _who() -> Section:
    beside = "count by (node, resource) (gpuform:pod:gpus_requested)"
    table = Table(
        title="Pods that share GPUs",
        description="Sort by node: pods with the same node and resource are neighbours. Slices share "
        "neither memory nor compute; shares of a GPU share both.",
        keys={
            "node": "Node",
            "pool": "Pool",
            "sharing": "Shared by",
            "resource": "Resource",
            "namespace": "Namespace",
            "pod": "Pod",
        },
        columns=(
            Column("Requested", f"sum by ({_KEYS}) ({_ASKED})", "short"),
            Column("Used", f"sum by ({_KEYS}) (gpuform:pod:gpus_used{_POD})", "short"),
            Column(
                "Pods on these GPUs",
                f"sum by ({_KEYS}) (0 * {_ASKED} + on (node, resource) group_left () {beside})",
                "short",
            ),
        ),
        links={
            "node": ("GPUs of the node", to("devices", "node")),
            "namespace": ("Cost of the namespace", to("cost", "namespace")),
        },
        sort="Pods on these GPUs",
        height=11,
    )
    return Section("Pods", (table,))


def _course() -> Section:
    asked = f"gpuform:namespace:gpus_requested{{{POOL}, {NAMESPACE}}}"
    used = f"gpuform:namespace:gpus_used{{{POOL}, {NAMESPACE}}}"
    memory = f"sum by (node, gpu, GPU_I_PROFILE, GPU_I_ID) ({_DEVICES})"
    return Section(
        "Over time",
        (
            Series(
                title="Requested by namespace",
                description="In whole GPUs.",
                queries=(Query(f"sum by (namespace) ({asked})", "{{namespace}}"),),
                unit="short",
                stacked=True,
            ),
            Series(
                title="Used by namespace",
                description="In whole GPUs, divided among the pods of a GPU by their requests.",
                queries=(Query(f"sum by (namespace) ({used})", "{{namespace}}"),),
                unit="short",
                stacked=True,
            ),
            Series(
                title="Used by kind of sharing",
                description="Part of the requested GPUs. If it stays low, share more; above 100 %, pods use "
                "more than their share, which only slices and MPS prevent.",
                queries=(
                    Query(f"sum by (sharing) ({used}) / (sum by (sharing) ({asked}) > 0)", "{{sharing}}"),
                ),
                unit="percentunit",
            ),
            Bars(
                title="Memory of each GPU and slice",
                description="Part that is allocated.",
                queries=(
                    Query(
                        highest(f"{memory.format('used')} / {memory.format('total')}"),
                        "{{node}} gpu {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}",
                    ),
                ),
                unit="percentunit",
                most=1,
                steps=((0.75, "orange"), (0.9, "red")),
            ),
        ),
    )
