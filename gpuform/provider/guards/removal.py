"""The base of resources that act when they are deleted: they prepare a removal, or clean up after one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, TypeVar

from gpuform.kubernetes.client import ApiError, Client
from gpuform.provider.guards.guard import Guard
from gpuform.provider.handler import Call, CheckResult, Properties
from gpuform.provider.nodes.cluster import MERGE, Cluster
from gpuform.provider.nodes.inputs import check_inputs

POLL_S = 0.5
TIMEOUT_S = 120
"""Longest wait for the end of pods, or of what the garbage collector deletes."""
_Found = TypeVar("_Found")


class Removal(Guard):
    """A create and an update change nothing."""

    INPUTS: ClassVar[tuple[str, ...]] = ("kubeconfig", "context")

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs(news, self.INPUTS, iter(()))


async def wait_while(call: Call, find: Callable[[], Awaitable[_Found]]) -> _Found:
    """What ``find`` has found at the end of the wait: something false, unless the time was over."""
    deadline = time.monotonic() + (call.timeout or TIMEOUT_S)
    while (found := await find()) and time.monotonic() < deadline:
        await call.sleep(POLL_S)
    return found


async def change(client: Client, method: str, path: str, body: Mapping[str, Any] | None = None) -> bool:
    """Whether it was changed: an object that is missing, or another one by now, is fine."""
    try:
        await client.request(method, path, body=body, content_type=MERGE)
    except ApiError as error:
        if error.code not in (404, 409):
            raise
        return False
    return True
