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
        "needs a reboot of its node, or another card",
        "Nothing runs on it. Take the node out of use and reboot it; change the card if it comes again.",
    ),
    (
        "reset",
        "GpuXidReset",
        "critical",
        "needs a reset",
        "What runs on this GPU has failed or will. Drain the node, reset the GPU, and let pods come back.",
    ),
    (
        "application",
        "GpuXidApplication",
        "info",
        "had an error of the program that runs on it",
        "The GPU is sound: tell the owner of the pods on it, and change nothing on the node.",
    ),
    (
        "informational",
        "GpuXidInformational",
        "info",
        "noted something",
        "Nothing has to be done; it may explain another alert of the same GPU.",
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
        means="An XID that the table does not know: nothing is done because of it, and a person has to look.",
        summary=f"XID {{{{ $labels.xid }}}}, which gpuform does not know: {GPU_WHERE}",
        description=f"Look it up in NVIDIA's XID catalogue and do what it says there. {POOL_WHERE}",
    )
