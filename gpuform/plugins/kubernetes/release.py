"""``kubernetes:helm.sh/v3:Release`` on the helm command line."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TypeVar

from gpuform.plugins.handler import (
    Call,
    Cancelled,
    Checked,
    Diffed,
    InitFailed,
    PluginError,
    Properties,
    ReadResult,
)
from gpuform.plugins.kubernetes import release_history as history
from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.discovery import Discovery
from gpuform.plugins.kubernetes.naming import named
from gpuform.plugins.kubernetes.release_actions import Live, Target
from gpuform.plugins.kubernetes.release_check import complete
from gpuform.plugins.kubernetes.release_diff import diff
from gpuform.plugins.kubernetes.release_helm import Helm, HelmError
from gpuform.plugins.kubernetes.release_history import Next
from gpuform.plugins.kubernetes.release_ready import not_ready
from gpuform.plugins.kubernetes.release_values import live_inputs
from gpuform.plugins.properties import UNKNOWN, Secret, conceal, reveal, secret_strings

_T = TypeVar("_T")
TOKEN = "kubernetes:helm.sh/v3:Release"  # noqa: S105 - a type token


class ReleaseHandler:
    """Releases in one cluster, with the inputs, outputs and replacements of the official provider.

    Beyond it: a release that a killed run left is finished or cleaned up, one that somebody else made is
    refused with the way to import it, and a failure names what is not ready. ``manifest`` is no output.
    """

    def __init__(self, client: Client, discovery: Discovery) -> None:
        """Talk to the cluster of ``client``."""
        self._client = client
        self._discovery = discovery
        self._helm = Helm(client.access)

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """See `complete`; a name that the program does not give is ``<resource>-<8 hex>``."""
        known = olds.get("name") or news.get("name")
        name = "" if known else named(call, {}, {"metadata": {}})["metadata"]["name"]
        return await complete(call, self._helm, self._client.access.namespace, name, olds, news)

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Compare inputs; the cluster is not asked: `read` (a refresh) brings drift into the inputs."""
        old = old_inputs or reveal(olds.get("__inputs")) or {}
        status = reveal(olds.get("status"))
        known = str(status.get("status") or "") if isinstance(status, Mapping) else ""
        return diff(old, news, known, call.ignore_changes)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Install; an ``atomic`` one that fails is uninstalled again. See the class for one that exists."""
        if call.preview:
            return "", _outputs(news, None)
        target = self._target(call, news)
        async with self._helm.alone(target.id) as helm:
            target = self._target(call, news, helm)
            revisions = await target.history()
            step = history.after_create(revisions, call.urn)
            if step is Next.FOREIGN:
                last = revisions[-1]
                raise PluginError(
                    f"release {target.id} exists already (revision {last.number}, {last.status}) and was not "
                    f"made by this resource; import it with `pulumi import {TOKEN} {call.name} {target.id}`, "
                    "or choose another name"
                )
            if step in (Next.INSTALL, Next.REINSTALL):
                await self._install(target, news, again=step is Next.REINSTALL)
            else:
                await self._upgrade(target, news, revisions, step)
            return target.id, _outputs(news, await self._live(target))

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Look at the newest revision; values and chart version that differ come back as inputs."""
        old = inputs or reveal(olds.get("__inputs")) or {}
        namespace, _, name = id.partition("/")
        if not name:
            raise PluginError(f"id {id!r}: the id of a release is NAMESPACE/NAME; give it in this form")
        target = self._target(call, {**old, "name": name, "namespace": namespace})
        if not await target.history():
            return None
        live = await self._live(target)
        found = _found(old, live)
        return ReadResult(id, _outputs(found, live), found)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Upgrade; an ``atomic`` one that fails is rolled back and the state keeps what it had."""
        if call.preview:
            return _outputs(news, None)
        target = self._target(call, news)
        async with self._helm.alone(target.id) as helm:
            target = self._target(call, news, helm)
            revisions = await target.history()
            step = history.after_update(revisions)
            if step is Next.BUSY:
                last = revisions[-1]
                raise PluginError(
                    f"release {target.id}: revision {last.number} is {last.status}, by somebody else; "
                    f"wait for it, or end it with `helm rollback {target.name} -n {target.namespace}`"
                )
            if step in (Next.INSTALL, Next.REINSTALL):
                await self._install(target, news, again=step is Next.REINSTALL)
            else:
                await self._upgrade(target, news, revisions, step)
            return _outputs(news, await self._live(target))

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Uninstall, and wait until its objects are gone unless ``skipAwait``; bounded by ``timeout``."""
        namespace, _, name = id.partition("/")
        target = self._target(call, {**old_inputs, "name": name, "namespace": namespace})
        async with self._helm.alone(target.id) as helm:
            target = self._target(call, {**old_inputs, "name": name, "namespace": namespace}, helm)
            try:
                await target.uninstall(wait=target.awaited)
            except HelmError as error:
                raise PluginError(f"release {target.id}: not uninstalled: {error}") from error

    async def _install(self, target: Target, news: Properties, again: bool) -> None:
        if again:
            await target.call.status(f"release {target.id}: removing what an earlier run left unfinished")
            await self._guarded(target, target.uninstall())
        try:
            await target.install()
        except HelmError as error:
            reason = await self._why(target, error)
            if not await target.history():
                raise PluginError(f"release {target.id}: not installed: {reason}") from error
            if not target.inputs.get("atomic"):
                message = f"release {target.id} was installed, but did not become ready: {reason}"
                raise InitFailed(target.id, _outputs(news, await self._live(target)), [message]) from error
            await self._guarded(target, target.uninstall())
            _stopped(target)
            raise PluginError(f"release {target.id}: not installed, and removed again: {reason}") from error

    async def _upgrade(
        self, target: Target, news: Properties, revisions: list[history.Revision], step: Next
    ) -> None:
        good = history.last_good(revisions)
        if step is Next.REPAIR and good:
            await target.call.status(
                f"release {target.id}: back to revision {good.number} after a killed run"
            )
            await self._guarded(target, target.rollback(good.number, wait=False))
            revisions = await target.history()
            good = history.last_good(revisions)
        try:
            await target.upgrade(revisions)
        except HelmError as error:
            reason = await self._why(target, error)
            now = await target.history()
            if now and now[-1].number == (revisions[-1].number if revisions else 0):
                raise PluginError(f"release {target.id}: not upgraded: {reason}") from error
            if not target.inputs.get("atomic") or not good:
                message = f"release {target.id} was upgraded, but did not become ready: {reason}"
                raise InitFailed(target.id, _outputs(news, await self._live(target)), [message]) from error
            await self._back(target, good.number, reason)

    async def _back(self, target: Target, revision: int, reason: str) -> None:
        try:
            await target.rollback(revision, wait=True)
        except HelmError as error:
            raise PluginError(
                f"release {target.id}: upgrade failed: {reason}; going back to revision {revision} failed as "
                f"well: {error}; look at it with `helm history {target.name} -n {target.namespace}`"
            ) from error
        _stopped(target)
        raise PluginError(
            f"release {target.id}: upgrade failed, rolled back to revision {revision}: {reason}"
        )

    async def _why(self, target: Target, error: HelmError) -> str:
        """helm's reason and, since helm only says that time ran out, what is not ready."""
        try:
            waiting = await not_ready(
                self._client, self._discovery, (await target.live()).manifest, target.namespace
            )
        except (HelmError, PluginError):
            waiting = []
        return "; ".join([str(error), *waiting])

    async def _live(self, target: Target) -> Live:
        return await self._guarded(target, target.live())

    async def _guarded(self, target: Target, work: Awaitable[_T]) -> _T:
        try:
            return await work
        except HelmError as error:
            raise PluginError(f"release {target.id}: {error}") from error

    def _target(self, call: Call, inputs: Properties, helm: Helm | None = None) -> Target:
        secrets = tuple(secret_strings(inputs))
        return Target(helm or self._helm, self._client, call, reveal(inputs), secrets)


def _stopped(target: Target) -> None:
    if target.call.cancelled.is_set():
        raise Cancelled(f"release {target.id}: cancelled; what was begun has been undone")


def _found(inputs: Properties, live: Live) -> Properties:
    """``inputs`` as they would have to be to describe ``live``; for an import, what there is to know."""
    found = dict(inputs) or {"chart": live.chart, "version": live.version}
    found |= {"name": live.name, "namespace": live.namespace}
    values = live_inputs(inputs, live.values)
    if values is not None and (values or "values" in inputs):
        found["values"] = values
    if inputs.get("version") and reveal(inputs["version"]) != live.version and not _same_chart(inputs, live):
        found["version"] = live.version
    return found


def _same_chart(inputs: Properties, live: Live) -> bool:
    """Whether the version asked for is a range or has a ``v`` more or less than the chart's own."""
    wanted = str(reveal(inputs["version"]))
    return wanted.lstrip("v") == live.version.lstrip("v") or any(sign in wanted for sign in "^~<>=*x ")


def _outputs(inputs: Properties, live: Live | None) -> Properties:
    """What the engine stores: the inputs, what helm says (unknown in a preview), and the inputs once more.

    ``__inputs`` is where the official provider looks for them, should it take over.
    """
    computed = live.outputs() if live else {"status": UNKNOWN}
    outputs = {**inputs, **computed}
    if live and "version" not in inputs:
        outputs["version"] = live.version
    return {**conceal(outputs, inputs), "__inputs": Secret(reveal(inputs))}
