"""GKE's own accelerator metrics with the labels of DCGM's series; ``recorded.yaml`` describes their forms."""

from __future__ import annotations

_CLOUD = "kubernetes_io:node_accelerator_"
_KUBELET = "container_accelerator_"
_CLOUD_LABELS = ("node_name", "accelerator_id")
_FORMS = (
    (*_CLOUD_LABELS, f"{_CLOUD}duty_cycle", f"{_CLOUD}memory_used", f"{_CLOUD}memory_total"),
    (
        *("node_name", "accelerator_index"),
        *("duty_cycle_gpu_node", "memory_used_gpu_node", "memory_total_gpu_node"),
    ),
    (
        *("node", "acc_id"),
        *(f"{_KUBELET}duty_cycle", f"{_KUBELET}memory_used_bytes", f"{_KUBELET}memory_total_bytes"),
    ),
)
"""Labels of node and device, and the names of three metrics; the first is in percent."""
_TENSORCORE = (*_CLOUD_LABELS, f"{_CLOUD}tensorcore_utilization")
"""For devices without a duty cycle, in percent as well."""


def expressions() -> dict[str, str]:
    """PromQL of the part of time in which each device was busy, and of its memory in bytes."""
    busy = [_relabel(node, gpu, duty) for node, gpu, duty, _, _ in _FORMS] + [_relabel(*_TENSORCORE)]
    return {
        "gke_util": _join_forms([f"({metric}) / 100" for metric in busy]),
        "gke_used": _join_forms([_relabel(node, gpu, used) for node, gpu, _, used, _ in _FORMS]),
        "gke_total": _join_forms([_relabel(node, gpu, total) for node, gpu, _, _, total in _FORMS]),
    }


def _join_forms(expressions: list[str]) -> str:
    return " or on (node,gpu) ".join(f"({expression})" for expression in expressions)


def _relabel(node: str, gpu: str, metric: str) -> str:
    """The metric with DCGM's labels; GKE has no UUID, so its device id is used instead."""
    expression = f'{metric}{{{node}!="",{gpu}!=""}}'
    for target, source in (("node", node), ("gpu", gpu), ("UUID", gpu), ("modelName", "model")):
        if target != source:
            expression = f'label_replace({expression},"{target}","$1","{source}","(.+)")'
    return f"max by (node,gpu,UUID,modelName) ({expression})"
