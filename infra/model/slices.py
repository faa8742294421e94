"""Whether the slices of a pool can be offered by the strategy that holds on its nodes."""

from __future__ import annotations

from infra.model.errors import InputError
from infra.model.offer import MigStrategy, own_strategy
from infra.model.pool import Pool
from infra.model.sharing import Mig


def check(strategy: MigStrategy, pool: Pool, path: str) -> None:
    """Refuse slices that the strategy does not offer; ``strategy`` is the operator's, ``path`` the pool's."""
    sharing = pool.sharing
    if not isinstance(sharing, Mig):
        return
    own = own_strategy(strategy, pool)
    where = "sharing.strategy" if sharing.strategy else "gpu_operator.mig_strategy"
    mixed = "strategy: mixed" if sharing.strategy else "mig_strategy: mixed"
    if own == "none":
        raise InputError(
            f"{path}.sharing.kind", f"{where} none offers no slices", "use mig_strategy: mixed or single"
        )
    if own == "single" and len(pool.layout or {}) > 1:
        fact = f"{where} single takes one profile per node"
        raise InputError(f"{path}.sharing.layout", fact, f"use {mixed}, or one profile")
    if own == "single" and sharing.devices is not None:
        fact = f"under {where} single all GPUs of a node must have the same MIG setting"
        raise InputError(f"{path}.sharing.devices", fact, f"use {mixed}, or leave devices out")
