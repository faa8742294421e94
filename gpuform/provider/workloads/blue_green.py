"""``gpuform:workloads:BlueGreen``: a Service and two Deployments, one of them live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Unreachable
from gpuform.provider.handler import Call, Change, CheckResult, DiffResult, InitFailed, Properties, ReadResult
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.nodes.inputs import TIMEOUT_S, check_inputs
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal
from gpuform.provider.workloads.pair import Pair, PairState, opposite
from gpuform.provider.workloads.rollout import Rollout
from infra.model.base.labels import COLOURS

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
    """The live cluster shows what is left to do (see `Rollout`); ``colour`` is the live one.

    A create with pods that do not get ready is kept, and the next update resumes it. Deleting removes the
    Service and both Deployments and waits until their pods are gone.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        inputs = {"step": 1, "deadlineSeconds": TIMEOUT_S, **news}
        return check_inputs(inputs, _INPUTS, _failures(inputs))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        """Changed manifests, and ``colour`` if the cluster differs from them; another name is a replacement.

        A change of ``step``, ``switchAt`` or ``deadlineSeconds`` alone is not a difference.
        """
        changes = {
            path: Change.UPDATE for path, keys in _PARTS.items() if _get(old_inputs, keys) != _get(news, keys)
        }
        if not has_unknown(news):
            if _name(old_inputs) != _name(news):
                path = "deployment.metadata"
                return DiffResult(changes={path: Change.UPDATE}, replaces=[path], delete_before_replace=True)
            try:
                if not _is_settled(await self._pair(news).read_state(), self._pair(news)):
                    changes["colour"] = Change.UPDATE
            except Unreachable as error:
                await call.warn(f"{error}; the Deployments were not checked")
        return DiffResult(changes=changes)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Create the Service and the first colour; `InitFailed` if its pods do not get ready."""
        if call.preview:
            return "", {**news, "colour": UNKNOWN if has_unknown(news) else COLOURS[0]}
        try:
            return _id(news), await self._roll_out(call, news)
        except OperationError as error:
            if isinstance(error, Unreachable) or not (await self._pair(news).read_state()).live:
                raise
            raise InitFailed(_id(news), {**news, "colour": COLOURS[0]}, [str(error)]) from error

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        if not inputs:
            raise OperationError(f"{id}: a BlueGreen cannot be imported; declare it under a new name")
        state = await self._pair(inputs).read_state()
        return ReadResult(id, {**inputs, "colour": state.live}, inputs) if state.live else None

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        if call.preview:
            return await self._preview(call, news)
        return await self._roll_out(call, news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete Service and Deployments; pods that do not end in time are an error."""
        pair = self._pair(old_inputs)
        await pair.delete()
        limit = float(call.timeout or reveal(old_inputs.get("deadlineSeconds")) or TIMEOUT_S)
        deadline = time.monotonic() + limit
        while pods := (await pair.read_state()).gpu_pods:
            if time.monotonic() > deadline:
                raise OperationError(f"{pair.title}: {pods} pods have not ended after {limit:.0f} s")
            await call.status(f"{pair.title}: waiting for {pods} pods to end")
            await call.sleep(0.5)

    async def _roll_out(self, call: Call, news: Properties) -> Properties:
        plain = reveal(news)
        deadline = float(call.timeout or plain["deadlineSeconds"])
        rollout = Rollout(call, self._pair(news), int(plain["step"]), int(plain["switchAt"]), deadline)
        return {**news, "colour": await rollout.run()}

    async def _preview(self, call: Call, news: Properties) -> Properties:
        if has_unknown(news):
            return {**news, "colour": UNKNOWN}
        pair = self._pair(news)
        try:
            state = await pair.read_state()
        except Unreachable as error:
            await call.warn(f"{error}; the Deployments were not checked")
            return {**news, "colour": UNKNOWN}
        live = state.live or COLOURS[0]
        if state.colours[live].template in ("", pair.template):
            return {**news, "colour": live}
        step = reveal(news)["step"]
        await call.info(f"{pair.title}: {live} -> {opposite(live)}, {step} of {pair.replicas} pods at a time")
        return {**news, "colour": opposite(live)}

    def _pair(self, inputs: Properties) -> Pair:
        plain = reveal(inputs)
        return Pair(self._clusters(inputs).client, plain["deployment"], plain["service"])


def _is_settled(state: PairState, pair: Pair) -> bool:
    """Whether one colour has everything, as wanted. Pods that are not ready for a while are not a change."""
    if not state.live or state.source:
        return False
    live, other = state.colours[state.live], state.colours[opposite(state.live)]
    return live.template == pair.template and live.replicas == pair.replicas and not other.replicas


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
    for key, limit in (("step", replicas), ("switchAt", replicas - 1), ("deadlineSeconds", None)):
        value = plain.get(key)
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer or value < 1 or (limit is not None and value > limit):
            yield key, f"{value!r} is not between 1 and {limit}" if limit else f"{value!r} is not 1 or more"


def _get(inputs: Properties, keys: tuple[str, ...]) -> Any:
    value: Any = reveal(inputs)
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else value
    return value


def _name(inputs: Properties) -> tuple[Any, Any]:
    metadata = _get(inputs, ("deployment", "metadata"))
    return metadata.get("namespace"), metadata.get("name")


def _id(inputs: Properties) -> str:
    return "/".join(str(part) for part in _name(inputs))
