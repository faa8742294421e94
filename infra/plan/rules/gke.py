"""GKE's own accelerator metrics, mapped to the same series as DCGM's.

Three forms are known: Cloud Monitoring's through PromQL (``kubernetes_io:node_accelerator_*``, GPUs and
TPUs), those of GKE's device plugin (``*_gpu_node``), and the kubelet's of older clusters
(``container_accelerator_*``). TPUs have no other metrics. GKE's have no MIG instance, no power and no XID.
Only an existing cluster can be GKE, so the rules of every other kind have none of this.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.plan.rules.promql import GPU, most


@dataclass(frozen=True)
class Form:
    """One family of metrics, and the names of its node and device labels."""

    duty_cycle: str
    memory_used: str
    memory_total: str
    node: str
    gpu: str
    fallback: str | None = None
    """Another metric, in percent, for devices of this family without a duty cycle."""


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
    """The metric with DCGM's labels; GKE has no UUID, so its device id is used instead."""
    found = f'{metric}{{{form.node}!="",{form.gpu}!=""}}'
    for to, source in (("node", form.node), ("gpu", form.gpu), ("UUID", form.gpu), ("modelName", "model")):
        if to != source:
            found = f'label_replace({found},"{to}","$1","{source}","(.+)")'
    return most(GPU, found)
