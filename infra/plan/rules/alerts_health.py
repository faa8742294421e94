"""Alerts about the health loop; without a loop they have no data to fire on."""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.environment import Environment
from infra.model.labels import GPU_UNHEALTHY
from infra.plan.rules.alert import POOL_WHERE, Alert
from infra.plan.rules.promql import RANGE, most, with_pool

_BREAKER = "gpuform_health_breaker_open"
_ACTIONS = "gpuform_health_actions_total"
_LOOKED = "gpuform_health_last_look_timestamp_seconds"
"""Time of the last successful look; a look fails if Prometheus or the API server does not answer."""


def alerts(env: Environment) -> Iterator[Alert]:
    """Alerts about the breaker, the loop and its actions."""
    yield Alert(
        name="GpuHealthBreakerOpen",
        severity="critical",
        expr=f"max({_BREAKER}) > 0",
        means="The health loop has used up its budget of actions and has stopped until a person has checked.",
        summary="the health loop has stopped acting: more faults than its budget allows",
        description="If many GPUs fail at once, the GPUs are rarely the cause: look for a common one.",
    )
    failed = f'{_ACTIONS}{{result="failed"}}'
    grown = f"increase({failed}[15m])"
    gone = f"max(last_over_time({_BREAKER}[1h])) unless on () max({_BREAKER})"
    missing = f"absent({_BREAKER})" if _declared(env) else f"({gone})"
    yield Alert(
        name="GpuHealthRemediatorAbsent",
        severity="critical",
        wait="10m",
        expr=f"{missing} or max(changes({_LOOKED}[{RANGE}])) == 0",
        means="The health loop does not answer, or gets no data: it does not act on faulty GPUs.",
        summary="the health loop does not answer, or gets no data",
        description="Faults are still measured, and alerts fire. Check its Deployment in gpuform-health.",
    )
    yield Alert(
        name="GpuHealthActionFailed",
        severity="warning",
        # The counter first appears with the first failure, which ``increase`` does not see.
        expr=f"sum by (node,class,action) ({grown} > 0 or ({failed} unless {failed} offset 15m))",
        means="An action of the health loop on a node failed.",
        summary="the health loop could not {{ $labels.action }} node {{ $labels.node }}",
        description="Class of the fault: {{ $labels.class }}. The loop's log has the error; it tries again.",
    )
    yield Alert(
        name="GpuUnhealthyTaintStuck",
        severity="warning",
        wait="4h",
        expr=with_pool(most(("node",), f'kube_node_spec_taint{{key="{GPU_UNHEALTHY}"}}')),
        means="A node with a broken GPU has been out of use for four hours: neither replaced nor repaired.",
        summary="node {{ $labels.node }} with a broken GPU has been out of use for four hours",
        description="It costs as much as before. Mode cordon writes no ticket; in the others it is open, "
        f"or Karpenter waits for the node's pods. {POOL_WHERE}",
    )


def _declared(env: Environment) -> bool:
    return env.health is not None
