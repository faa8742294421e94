"""Create and update: server-side apply under a field manager of the resource's own, then the wait."""

from __future__ import annotations

from typing import Any

import httpx

from gpuform.plugins.handler import Call, InitFailed, PluginError, Properties
from gpuform.plugins.kubernetes import manifests
from gpuform.plugins.kubernetes.client import ApiError, Unreachable
from gpuform.plugins.kubernetes.cluster import Cluster
from gpuform.plugins.kubernetes.discovery import ResourceType
from gpuform.plugins.kubernetes.ignoring import without_ignored
from gpuform.plugins.kubernetes.messages import (
    exists,
    is_stale,
    of_official_provider,
    refusal,
    subject,
    without_secrets,
)
from gpuform.plugins.kubernetes.naming import field_manager, object_id, split_id
from gpuform.plugins.kubernetes.waiting import NotReady, limit, until_gone, until_ready
from gpuform.plugins.properties import has_unknown

_STALE_ATTEMPTS = 5
_BLOCKED_ATTEMPTS = 20  # times 0.5 s: a namespace that is being made, or its service account


class Applying:
    """Creates and updates objects of one cluster."""

    def __init__(self, cluster: Cluster, waits: bool = True) -> None:
        """Work on ``cluster``; ``waits`` is whether an operation ends only when the object is ready."""
        self.cluster = cluster
        self.waits = waits
        self.client = cluster.client

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make the object; one that our own killed create has left is taken over, any other is an error.

        A preview that cannot ask the server (no cluster, no such kind or namespace yet) expects the inputs.
        """
        if call.preview and has_unknown(news):
            return "", news
        try:
            kind = await self._type(call, news)
        except Unreachable as problem:
            if not call.preview:
                raise
            await self.cluster.preview_without(call, problem)
            return "", news
        if kind is None:
            return "", news
        manager = field_manager(call.urn)
        metadata = manifests.payload(news)["metadata"]
        namespace = str(metadata.get("namespace") or self.cluster.access.namespace)
        if "generateName" in metadata and "name" not in metadata:
            live = await self._post(call, kind.path(namespace), news, manager)
        else:
            path = kind.path(namespace, metadata["name"])
            if not await self._free(call, path, news, manager):
                return "", news
            live = await self._apply_new(call, path, news, manager)
        if live is None:
            return "", news
        return await self._finish(call, kind, live, news, manager)

    async def _type(self, call: Call, news: Properties) -> ResourceType | None:
        body = manifests.payload(news)
        if call.preview:
            return await self.cluster.type_of(body)
        return await self.cluster.awaited_type(call, body)

    async def _free(self, call: Call, path: str, news: Properties, manager: str) -> bool:
        """Whether the name is free, or ours from a create that was killed.

        False only in a preview: the object may be gone by then, if this update is to delete it.
        """
        live = await self.client.find(path)
        if live is None:
            return True
        managers = {entry.get("manager") for entry in live["metadata"].get("managedFields") or ()}
        if live["metadata"].get("deletionTimestamp"):
            if call.preview:
                return False
            await until_gone(call, self.client, path, live, limit(call, news))
            return True
        if call.preview:
            if not any(str(name).startswith("pulumi-kubernetes") for name in managers):
                await call.warn(str(exists(live, call.type, call.name)))
            return False
        if manager not in managers:
            raise exists(live, call.type, call.name)
        await call.info(f"{subject(live)}: taken over from an update that was interrupted")
        return True

    async def _apply_new(
        self, call: Call, path: str, news: Properties, manager: str
    ) -> dict[str, Any] | None:
        for attempt in range(_BLOCKED_ATTEMPTS):
            try:
                return await self._apply(call, path, news, manager, urn="")
            except ApiError as error:
                if not _not_yet(error):
                    raise refusal(error, manifests.payload(news), news) from None
                if call.preview:
                    return None
                if attempt == _BLOCKED_ATTEMPTS - 1:
                    raise refusal(error, manifests.payload(news), news) from None
            await call.sleep(0.5)
        return None

    async def _post(self, call: Call, path: str, news: Properties, manager: str) -> dict[str, Any] | None:
        """Create under a name that the server makes up; nothing recognises such an object after a kill."""
        params = {"fieldManager": manager, "fieldValidation": "Strict"}
        if call.preview:
            params["dryRun"] = "All"
        body = manifests.payload(news)
        try:
            answer = await self.client.request("POST", path, params=params, body=body)
        except ApiError as error:
            if call.preview and _not_yet(error):
                return None
            raise refusal(error, body, news) from None
        live: dict[str, Any] = answer.json()
        return live

    async def update(self, call: Call, id: str, olds: Properties, news: Properties) -> Properties:
        """Apply ``news``; an object that has vanished is made again."""
        if call.preview and has_unknown(news):
            return news
        manager = str(olds.get("__fieldManager") or field_manager(call.urn))
        initial = str(olds.get("__initialApiVersion") or "")
        try:
            kind = await self._type(call, news)
            if kind is None:
                return news
            namespace, name = split_id(id)
            path = kind.path(namespace or self.cluster.access.namespace, name)
            live = await self._apply(call, path, news, manager, urn=call.urn)
        except Unreachable as problem:
            if call.preview:
                await self.cluster.preview_without(call, problem)
                return news
            if self.cluster.settings.skip_update_unreachable:
                await call.warn(f"{problem}; the update is skipped, as skipUpdateUnreachable says")
                return olds
            raise
        except ApiError as error:
            if call.preview and _not_yet(error):
                return news
            raise refusal(error, manifests.payload(news), [news, olds], call.urn) from None
        _, state = await self._finish(call, kind, live, news, manager, initial)
        return state

    async def _apply(self, call: Call, path: str, news: Properties, manager: str, urn: str) -> dict[str, Any]:
        manager = manifests.annotation(news, manifests.PATCH_MANAGER) or manager
        force = manifests.flag(news, manifests.PATCH_FORCE)
        body = manifests.payload(news)
        if call.ignore_changes and (live := await self.client.find(path)):
            body = without_ignored(body, live, manager, call.ignore_changes)
        for attempt in range(_STALE_ATTEMPTS):
            try:
                answer = await self.client.apply(
                    path, body, manager=manager, force=force, dry_run=call.preview
                )
                break
            except ApiError as error:
                if of_official_provider(error) and not force:
                    force = True
                elif not is_stale(error) or attempt == _STALE_ATTEMPTS - 1:
                    raise
        await self._pass_warnings(call, answer, news)
        found: dict[str, Any] = answer.json()
        if urn and answer.status_code == 201 and not call.preview:
            await call.info(f"{subject(found)}: it was gone from the cluster; it has been made again")
        return found

    async def _pass_warnings(self, call: Call, answer: httpx.Response, news: Properties) -> None:
        for header in answer.headers.get_list("warning"):
            _, _, text = header.partition('"')
            await self.cluster.warn_once(call, without_secrets(text.rstrip('"'), news))

    async def _finish(
        self,
        call: Call,
        kind: ResourceType,
        live: dict[str, Any],
        news: Properties,
        manager: str,
        initial: str = "",
    ) -> tuple[str, Properties]:
        id = object_id(live)
        if self.waits and not call.preview and not manifests.flag(news, manifests.SKIP_AWAIT):
            path = kind.path(live["metadata"].get("namespace"), live["metadata"]["name"])
            try:
                live = await until_ready(call, self.client, path, live, limit(call, news))
            except NotReady as failure:
                state = manifests.outputs(failure.live, news, manager, initial)
                raise InitFailed(id, state, [without_secrets(str(failure), news)]) from None
            except PluginError as failure:
                state = manifests.outputs(live, news, manager, initial)
                raise InitFailed(id, state, [f"{subject(live)}: {failure}"]) from None
        return ("" if call.preview else id), manifests.outputs(live, news, manager, initial)


def _not_yet(error: ApiError) -> bool:
    """Whether only something that the object lives in is not there yet, or still going."""
    if error.code == 404:
        return True
    if error.code != 403:
        return False
    terminating = any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes)
    return terminating or "error looking up service account" in error.message
