"""GKE's own accelerator metrics, read into the same series as DCGM's.

Three forms of them are known: Cloud Monitoring's through PromQL (``kubernetes_io:node_accelerator_*``, GPUs
and TPUs), those of GKE's device plugin (``*_gpu_node``), and the kubelet's of older clusters
(``container_accelerator_*``). Nothing but these tells of a TPU. GKE knows no MIG instance, no power and no
XID there. Only an existing cluster can be GKE, so the rules of every other kind have none of this.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.plan.rules.promql import GPU, most


@dataclass(frozen=True)
class Form:
    """One family of metrics, and the labels that say of what."""

    duty_cycle: str
    memory_used: str
    memory_total: str
    node: str
    gpu: str
    fallback: str | None = None
    """Percent of something else that a device of this family may have instead of a duty cycle."""


_CLOUD = "kubernetes_io:node_accelerator"
FORMS = (
    Form(
        f"{_CLOUD}_duty_cycle",
        f"{_CLOUD}_memory_used",
        f"{_CLOUD}_memory_total",
        "node_name",
        "accelerator_id",
        f"{_CLOUD}_tensorcore_utilization",
    ),
    Form(
        "duty_cycle_gpu_node",
        "memory_used_gpu_node",
        "memory_total_gpu_node",
        "node_name",
        "accelerator_index",
    ),
    Form(
        "container_accelerator_duty_cycle",
        "container_accelerator_memory_used_bytes",
        "container_accelerator_memory_total_bytes",
        "node",
        "acc_id",
    ),
)


def utilisation() -> str:
    """Ratio of time that each device was busy."""
    found = [f"({_named(form, form.duty_cycle)}) / 100" for form in FORMS]
    found += [f"({_named(form, form.fallback)}) / 100" for form in FORMS if form.fallback]
    return _first(found)


def memory_used() -> str:
    """Bytes in use on each device."""
    return _first([_named(form, form.memory_used) for form in FORMS])


def memory_total() -> str:
    """Bytes that each device has."""
    return _first([_named(form, form.memory_total) for form in FORMS])


def _first(expressions: list[str]) -> str:
    return " or on (node,gpu) ".join(f"({one})" for one in expressions)


def _named(form: Form, metric: str) -> str:
    """The metric under DCGM's labels; GKE has no UUID, so its own id stands for it."""
    found = f'{metric}{{{form.node}!="",{form.gpu}!=""}}'
    for to, source in (("node", form.node), ("gpu", form.gpu), ("UUID", form.gpu), ("modelName", "model")):
        if to != source:
            found = f'label_replace({found},"{to}","$1","{source}","(.+)")'
    return most(GPU, found)
