"""Keys of the device plugin's configurations: one per way of sharing, not one per pool."""

from __future__ import annotations

from infra.model.base.fields import short_digest
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps, SliceShare, TimeSlicing

DEFAULT = "default"
"""Key for nodes without a label: without a default the config manager would stop."""
_LONGEST = 63
"""Characters: the key is also the value of a node's label."""


def key(pool: Pool) -> str:
    """The pool's key in the device plugin's ConfigMap."""
    sharing, strategy = pool.sharing, pool.strategy
    if isinstance(sharing, TimeSlicing):
        return _slicing_key(sharing)
    if isinstance(sharing, Mps):
        return f"mps-{sharing.replicas}"
    if not isinstance(sharing, Mig):
        return DEFAULT
    if sharing.share is None:
        return f"mig-{strategy}" if pool.has_own_strategy else DEFAULT
    suffix: str = strategy
    if strategy == "mixed":
        suffix = "_".join(sorted(profile.replace("+", ".") for profile in pool.profiles))
    name = f"{_slicing_key(sharing.share)}-mig-{suffix}"
    return name if len(name) <= _LONGEST else f"{name[:54].rstrip('-._')}-{short_digest(name)}"


def _slicing_key(share: TimeSlicing | SliceShare) -> str:
    name = "" if share.rename else "-keep-name"
    several = "" if share.fail_requests_greater_than_one else "-allow-several"
    return f"slice-{share.replicas}{name}{several}"
