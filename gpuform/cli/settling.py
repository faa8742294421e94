"""How `up` and `destroy` settle operations of an interrupted run, or given up by a provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuform.checkout.paths import Paths
    from gpuform.engine import Engine, Result
    from gpuform.engine.pending import Operation

Settle = Callable[["Sequence[Operation]"], object]


def settling(stack: str, paths: Paths, engine: Engine, at_cloud: bool, say: Callable[[str], None]) -> Settle:
    """A function that settles operations by `gpuform.stack.recover.resume`, imported only when called."""

    def settle(left: Sequence[Operation]) -> object:
        from gpuform.clouds import RECOVERIES
        from gpuform.stack.recover import Stack, resume

        return resume(Stack(stack, paths, engine, RECOVERIES, at_cloud), left, say)

    return settle


def run_up(
    engine: Engine,
    stack: str,
    paths: Paths,
    at_cloud: bool,
    say: Callable[[str], None],
    packs: Sequence[Path] = (),
    acknowledged: Sequence[str] = (),
) -> Result:
    """Run ``Engine.up`` after settling what is left; at a cloud, again once the cloud has done its part."""
    settle = settling(stack, paths, engine, at_cloud, say)

    def run() -> Result:
        return engine.up(stack, policy_packs=packs, settle=settle, acknowledged=acknowledged)

    from gpuform.engine import EngineFailure

    try:
        return run()
    except EngineFailure as failure:
        if not at_cloud:
            raise
        from gpuform.clouds import RECOVERIES
        from gpuform.stack.recover import Stack, run_to_the_end

        return run_to_the_end(Stack(stack, paths, engine, RECOVERIES), failure, run, say)
