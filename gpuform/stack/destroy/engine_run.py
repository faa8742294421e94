"""The engine's destroy, which also ends where Helm lacks a release that the state has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuform.checkout.listing import abbreviate
from gpuform.engine import Engine, EngineFailure, Event, Result
from gpuform.engine.events import Step
from gpuform.engine.pending import RELEASE
from gpuform.stack.destroy.state import retain_on_delete

_NOT_FOUND = "release: not found"
"""Helm's ErrReleaseNotFound (pkg/storage/driver)."""


def run_destroy(
    engine: Engine,
    stack: str,
    excluded: Sequence[str],
    on_event: Callable[[Event], None],
    say: Callable[[str], None],
) -> Result:
    """Destroy, and again without the releases that a killed run had uninstalled.

    The provider fails to uninstall them again, and its refresh does not forget them (its issue 2675).
    """
    try:
        return engine.destroy(stack, on_event, excluded)
    except EngineFailure as failure:
        if not (uninstalled := _uninstalled_releases(failure.result)):
            raise
        say(f"forgets {abbreviate([step.name for step in uninstalled])}: already uninstalled")
        forget(engine, stack, (step.urn for step in uninstalled))
        return run_destroy(engine, stack, excluded, on_event, say).after((failure.result,))


def forget(engine: Engine, stack: str, urns: Iterable[str]) -> None:
    """Let the engine's destroy remove these resources from the state without deleting them."""
    engine.restore(stack, retain_on_delete(engine.export(stack), urns))


def _uninstalled_releases(result: Result) -> list[Step]:
    unknown = {message.urn for message in result.messages if _NOT_FOUND in message.text}
    failed = [step for step in result.steps if (step.op, step.phase) == ("delete", "failed")]
    return [step for step in failed if step.type == RELEASE and step.urn in unknown]
