"""Names of what may be lost: from the stack file, and from the command that runs the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from infra.model.losses import VARIABLE


def names(inputs: Mapping[str, Any]) -> frozenset[str]:
    """The guard's own input ``acknowledged``, and the names in the engine's environment."""
    return frozenset(inputs.get("acknowledged") or ()) | frozenset(os.environ.get(VARIABLE, "").split())
