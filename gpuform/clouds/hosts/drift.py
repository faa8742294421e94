"""Drift of own hosts."""

from __future__ import annotations

from gpuform.checkout.errors import InputError
from gpuform.stack.drift.rules import DriftRules


class HostsDrift(DriftRules):
    """The engine does not manage own hosts; Ansible finds their changes."""

    def require_managed(self, stack: str) -> None:
        raise InputError(
            f"stack {stack}", "is on own hosts, which the engine does not manage", "use `gpuform hosts check`"
        )
