"""How a wait that did not end well is told."""

from __future__ import annotations

from gpuform.plugins.openstack.api import Live
from gpuform.plugins.openstack.waiting import Gone, Late, Wait


def failed(live: Live) -> bool:
    """Whether the last that Magnum did with it has failed."""
    return str(live.get("status")).endswith("_FAILED")


def late_told(wait: Wait, late: Late) -> str:
    """Still at it at the bound."""
    status = (late.live or {}).get("status") or "not begun"
    return (
        f"{wait.what}: still {status} after {late.waited_s / 60:.0f} min; "
        "Magnum goes on, and the same command waits on (customTimeouts make it wait longer)"
    )


def ended(wait: Wait, end: Exception) -> str:
    """Gone, or nothing moved."""
    if isinstance(end, Gone):
        return (
            f"{wait.what}: it is gone; 'pulumi refresh' takes it out of the state, and the next up makes it"
        )
    live = getattr(end, "live", None) or {}
    return (
        f"{wait.what}: Magnum took the request and does nothing about it ({live.get('status')}); is its "
        "conductor running? The next up asks again"
    )
