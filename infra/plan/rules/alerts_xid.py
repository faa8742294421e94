"""Alerts about XIDs: one for each class of the table, and one for XIDs that the table does not have."""

from __future__ import annotations

from collections.abc import Iterator

from infra.model import xid
from infra.plan.rules.alert import GPU_WHERE, POOL_WHERE, Alert, Severity
from infra.plan.rules.faults import ACTIVE, UNKNOWN

_WORDS: tuple[tuple[xid.Class, str, Severity, str, str], ...] = (
    (
        "replace",
        "GpuXidReplace",
        "critical",
        "needs a reboot of its node, or a replacement",
        "The GPU does not work. Drain the node and reboot it; replace the GPU if the XID recurs.",
    ),
    (
        "reset",
        "GpuXidReset",
        "critical",
        "needs a reset",
        "Pods on this GPU have failed or will fail. Drain the node, reset the GPU, and uncordon the node.",
    ),
    (
        "application",
        "GpuXidApplication",
        "info",
        "reports an error of a program on it",
        "The GPU is healthy: tell the owner of the pods on it, and change nothing on the node.",
    ),
    (
        "informational",
        "GpuXidInformational",
        "info",
        "reports an informational event",
        "No action is needed; it may explain another alert of the same GPU.",
    ),
)


def alerts() -> Iterator[Alert]:
    """XID alerts, most severe first; unknown XIDs last."""
    for kind, name, severity, what, then in _WORDS:
        yield Alert(
            name=name,
            severity=severity,
            expr=f'{ACTIVE}{{class="{kind}",reason="xid"}}',
            means=f"An XID of the class {kind}: {xid.ASKS[kind]}.",
            summary=f"XID {{{{ $labels.xid }}}}: {GPU_WHERE} {what}",
            description=f"{then} {POOL_WHERE}",
        )
    yield Alert(
        name="GpuXidUnknown",
        severity="warning",
        expr=f'{ACTIVE}{{reason="{UNKNOWN}"}}',
        means="An XID that is not in the table: gpuform takes no action, and a person has to check.",
        summary=f"XID {{{{ $labels.xid }}}}, which gpuform does not know: {GPU_WHERE}",
        description=f"Look it up in NVIDIA's XID catalogue and follow its instructions. {POOL_WHERE}",
    )
