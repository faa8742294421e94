"""What `up` and `destroy` do first about what an interrupted run was making."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuform.engine import Engine
    from gpuform.engine.pending import Operation
    from gpuform.paths import Paths

Settle = Callable[["Sequence[Operation]"], None]


def settling(stack: str, paths: Paths, engine: Engine, at_cloud: bool, say: Callable[[str], None]) -> Settle:
    """Settles the operations that it is given, as `gpuform.recover.go_on` says; imports it only then."""

    def settle(left: Sequence[Operation]) -> None:
        from gpuform.recover import Stack, go_on

        go_on(Stack(stack, paths, engine, at_cloud=at_cloud), left, say)

    return settle
