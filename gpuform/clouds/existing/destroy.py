"""How a stack on an existing cluster is destroyed: the cluster is not removed, and others use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpuform.stack.destroy import Teardown


@dataclass
class ExistingTeardown(Teardown):
    """The engine deletes the stack's objects; a namespace with objects of others stays."""

    keeps: ClassVar[bool] = True
