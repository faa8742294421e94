"""The base of the guards: resources that only check."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Call, DiffResult, Properties, ReadResult
from infra.model.base.guard_names import VARIABLE


class Guard:
    """Everything of a handler but its check.

    The diff is always empty, because a guard changes nothing itself; the engine stores the new inputs
    nevertheless. The outputs are constant, so a refresh finds no difference either, and not empty: in a state
    that is the mark of a resource that could not be read.
    """

    def outputs(self, inputs: Properties) -> Properties:
        raise NotImplementedError

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        return DiffResult()

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        return "" if call.preview else call.name, self.outputs(news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        if not inputs:
            raise OperationError(f"{id}: a {type(self).__name__} cannot be imported; declare what it guards")
        return ReadResult(id, self.outputs(inputs), inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        return self.outputs(news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete nothing."""


def acknowledged_names(inputs: Mapping[str, Any]) -> frozenset[str]:
    """The guard's own input ``acknowledged``, and the names in the engine's environment."""
    return frozenset(inputs.get("acknowledged") or ()) | frozenset(os.environ.get(VARIABLE, "").split())
