"""``gpuform:workloads:BlueGreen``: a Service and two Deployments, one of them live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Unreachable
from gpuform.provider.handler import Call, Change, Checked, Diffed, InitFailed, Properties, ReadResult
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.nodes.inputs import TIMEOUT_S, checked
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal
from gpuform.provider.workloads.pair import Pair, Seen, other
from gpuform.provider.workloads.turn import Turn
from infra.model.serving import COLOURS

_INPUTS = (
    "kubeconfig", "context", "deployment", "service", "step", "switchAt", "deadlineSeconds"
)  # fmt: skip
_PARTS = {
    "deployment.spec.template": ("deployment", "spec", "template"),
    "deployment.spec.replicas": ("deployment", "spec", "replicas"),
    "deployment.metadata": ("deployment", "metadata"),
    "service": ("service",),
}


class BlueGreen:
    """The live cluster shows what is left to do (see `Turn`); ``colour`` is the live one.

    A create with pods that do not get ready is kept, and the next update resumes it. Deleting removes the
    Service and both Deployments and waits until their pods are gone.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        given = {"step": 1, "deadlineSeconds": TIMEOUT_S, **news}
        return checked(given, _INPUTS, _failures(given))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Changed manifests, and ``colour`` if the cluster differs from them; another name is a replacement.

        A change of ``step``, ``switchAt`` or ``deadlineSeconds`` alone is not a difference.
        """
        changes = {
            path: Change.UPDATE for path, keys in _PARTS.items() if _at(old_inputs, keys) != _at(news, keys)
        }
        if not has_unknown(news):
            if _name(old_inputs) != _name(news):
                path = "deployment.metadata"
                return Diffed(changes={path: Change.UPDATE}, replaces=[path], delete_before_replace=True)
            try:
                if not _settled(await self._pair(news).see(), self._pair(news)):
                    changes["colour"] = Change.UPDATE
            except Unreachable as error:
                await call.warn(f"{error}; the Deployments were not checked")
        return Diffed(changes=changes)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Create the Service and the first colour; `InitFailed` if its pods do not get ready."""
        if call.preview:
            return "", {**news, "colour": UNKNOWN if has_unknown(news) else COLOURS[0]}
        try:
            return _id(news), await self._turn(call, news)
        except OperationError as error:
            if isinstance(error, Unreachable) or not (await self._pair(news).see()).live:
                raise
            raise InitFailed(_id(news), {**news, "colour": COLOURS[0]}, [str(error)]) from error

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        if not inputs:
            raise OperationError(f"{id}: a BlueGreen cannot be imported; declare it under a new name")
        seen = await self._pair(inputs).see()
        return ReadResult(id, {**inputs, "colour": seen.live}, inputs) if seen.live else None

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        if call.preview:
            return await self._expected(call, news)
        return await self._turn(call, news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete Service and Deployments; pods that do not end in time are an error."""
        pair = self._pair(old_inputs)
        await pair.remove()
        limit = float(call.timeout or reveal(old_inputs.get("deadlineSeconds")) or TIMEOUT_S)
        deadline = time.monotonic() + limit
        while held := (await pair.see()).held:
            if time.monotonic() > deadline:
                raise OperationError(f"{pair.title}: {held} pods have not ended after {limit:.0f} s")
            await call.status(f"{pair.title}: waiting for {held} pods to end")
            await call.sleep(0.5)

    async def _turn(self, call: Call, news: Properties) -> Properties:
        plain = reveal(news)
        deadline = float(call.timeout or plain["deadlineSeconds"])
        turn = Turn(call, self._pair(news), int(plain["step"]), int(plain["switchAt"]), deadline)
        return {**news, "colour": await turn.run()}

    async def _expected(self, call: Call, news: Properties) -> Properties:
        if has_unknown(news):
            return {**news, "colour": UNKNOWN}
        pair = self._pair(news)
        try:
            seen = await pair.see()
        except Unreachable as error:
            await call.warn(f"{error}; the Deployments were not checked")
            return {**news, "colour": UNKNOWN}
        live = seen.live or COLOURS[0]
        if seen.sides[live].template in ("", pair.template):
            return {**news, "colour": live}
        step = reveal(news)["step"]
        await call.info(f"{pair.title}: {live} -> {other(live)}, {step} of {pair.replicas} pods at a time")
        return {**news, "colour": other(live)}

    def _pair(self, inputs: Properties) -> Pair:
        plain = reveal(inputs)
        return Pair(self._clusters(inputs).client, plain["deployment"], plain["service"])


def _settled(seen: Seen, pair: Pair) -> bool:
    """Whether one colour has everything, as wanted. Pods that are not ready for a while are not a change."""
    if not seen.live or seen.source:
        return False
    side, rest = seen.sides[seen.live], seen.sides[other(seen.live)]
    return side.template == pair.template and side.replicas == pair.replicas and not rest.replicas


def _failures(news: Properties) -> Iterator[tuple[str, str]]:
    plain = reveal(news)
    if not plain.get("kubeconfig"):
        yield "kubeconfig", "is missing; give a path, or the contents"
    for key in ("deployment", "service"):
        if not isinstance(plain.get(key), Mapping) and plain.get(key) is not UNKNOWN:
            yield key, "is missing; give the manifest"
            return
    if has_unknown(plain):
        return
    if _name(news) != (plain["service"]["metadata"].get("namespace"), plain["service"]["metadata"]["name"]):
        yield "service.metadata", "must have the Deployment's name and namespace"
    replicas = int(plain["deployment"]["spec"].get("replicas") or 0)
    for key, most in (("step", replicas), ("switchAt", replicas - 1), ("deadlineSeconds", None)):
        value = plain.get(key)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < 1 or (most is not None and value > most):
            yield key, f"{value!r} is not between 1 and {most}" if most else f"{value!r} is not 1 or more"


def _at(inputs: Properties, keys: tuple[str, ...]) -> Any:
    found: Any = reveal(inputs)
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else found
    return found


def _name(inputs: Properties) -> tuple[Any, Any]:
    metadata = _at(inputs, ("deployment", "metadata"))
    return metadata.get("namespace"), metadata.get("name")


def _id(inputs: Properties) -> str:
    return "/".join(str(part) for part in _name(inputs))
