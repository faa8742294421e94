"""Any Kubernetes object as a Pulumi resource, by server-side apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.plugins.handler import Call, Change, Checked, Diffed, InitFailed, Properties, ReadResult
from gpuform.plugins.kubernetes import manifests
from gpuform.plugins.kubernetes.applying import Applying
from gpuform.plugins.kubernetes.client import ApiError, Unreachable
from gpuform.plugins.kubernetes.cluster import Cluster
from gpuform.plugins.kubernetes.deleting import delete_object
from gpuform.plugins.kubernetes.difference import changes, declared
from gpuform.plugins.kubernetes.messages import refusal, subject, without_secrets
from gpuform.plugins.kubernetes.naming import (
    autonamed,
    field_manager,
    named,
    namespace_of,
    object_id,
    same_place,
    split_id,
    with_metadata,
)
from gpuform.plugins.kubernetes.readiness import readiness
from gpuform.plugins.kubernetes.replacement import replacing
from gpuform.plugins.kubernetes.waiting import explain
from gpuform.plugins.properties import UNKNOWN, has_unknown, reveal


class Objects:
    """The handler of every kind that needs no handler of its own."""

    waits = True  # whether an object is ready is part of its resource

    def __init__(self, cluster: Cluster) -> None:
        """Work on ``cluster``."""
        self.cluster = cluster
        self.applying = Applying(cluster, self.waits)

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Give the object its kind, a name and a namespace."""
        inputs = self.name(call, olds, manifests.normal(news, call.type))
        if not has_unknown([inputs["apiVersion"], inputs["kind"]]) and await self.cluster.scoped(inputs):
            inputs = _with_namespace(inputs, self.cluster.access.namespace)
        return Checked(inputs)

    def name(self, call: Call, olds: Properties, inputs: Properties) -> Properties:
        """``inputs`` with a name."""
        return named(call, olds, inputs)

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Compare with the last inputs; where these differ, ask the server what would change."""
        old_inputs = old_inputs or olds.get("__inputs") or {}
        asked = self._changed_inputs(old_inputs, news)
        if not asked:
            return Diffed()
        replaces = self.replaces(news, old_inputs, asked)
        if replaces or has_unknown(news):
            return Diffed(asked, replaces, delete_before_replace=self._in_the_way(replaces, old_inputs, news))
        try:
            found = await self._server_changes(call, olds, old_inputs, news)
        except Unreachable as problem:
            await self.cluster.preview_without(call, problem)
            found = None
        return Diffed(asked if found is None else found)

    def _in_the_way(self, replaces: list[str], old: Properties, new: Properties) -> bool:
        """Whether the old object must go first; where it need not, dependents move before it goes."""
        default = self.cluster.access.namespace
        return bool(replaces) and not autonamed(new) and same_place(old, new, default)

    def _changed_inputs(self, old: Properties, new: Properties) -> dict[str, Change]:
        """What differs between two sets of inputs; the default namespace is the same, said or not."""
        default = self.cluster.access.namespace
        found = changes(manifests.payload(old), manifests.payload(new))
        path = "metadata.namespace"
        if path in found and namespace_of(old, default) == namespace_of(new, default):
            del found[path]
        return found

    def replaces(self, news: Properties, olds: Properties, asked: Mapping[str, Change]) -> list[str]:
        """The changed paths that need a new object."""
        settings = self.cluster.settings
        mutable = settings.mutable_secrets if manifests.is_secret(news) else settings.mutable_config_maps
        mutable = mutable and not olds.get("immutable")
        return replacing(str(news["apiVersion"]), str(news["kind"]), asked, mutable)

    async def _server_changes(
        self, call: Call, olds: Properties, old_inputs: Properties, news: Properties
    ) -> dict[str, Change] | None:
        """What the server would change, or ``None`` where it cannot say."""
        kind = await self.cluster.type_of(news)
        if kind is None:
            return None
        body = manifests.payload(news)
        path = kind.path(namespace_of(body, self.cluster.access.namespace), body["metadata"]["name"])
        live = await self.cluster.client.find(path)
        if live is None:
            return None
        manager = str(olds.get("__fieldManager") or field_manager(call.urn))
        try:
            # Forced, because a conflict is the update's to report; the preview of the update reports it too.
            answer = await self.cluster.client.apply(path, body, manager=manager, force=True, dry_run=True)
        except ApiError as error:
            raise refusal(error, body, [news, old_inputs], call.urn) from None
        return changes(declared(live), declared(answer.json()))

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Make the object and wait until it is ready."""
        return await self.applying.create(call, news)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Change the object in place and wait until it is ready again."""
        return await self.applying.update(call, id, olds, news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """Look at the live object; one that is not ready is reported as such, and kept."""
        api_version, kind = manifests.of_token(call.type)
        wanted = {"apiVersion": api_version, "kind": kind} | _known(inputs or olds)
        found_type = await self.cluster.type_of(wanted)
        if found_type is None:
            return None
        namespace, name = split_id(id)
        path = found_type.path(namespace or self.cluster.access.namespace, name)
        live = await self.cluster.client.find(path)
        if live is None:
            return None
        manager = str(olds.get("__fieldManager") or field_manager(call.urn))
        fresh = manifests.refreshed(live, inputs)
        state = manifests.outputs(live, fresh, manager, str(olds.get("__initialApiVersion") or ""))
        result = ReadResult(object_id(live), state, fresh)
        missing = readiness(live)
        if self.waits and inputs and not missing.ready and not manifests.flag(inputs, manifests.SKIP_AWAIT):
            reason = await explain(self.cluster.client, live, missing)
            text = without_secrets(f"{subject(live)}: {reason}", inputs)
            raise InitFailed(result.id, state, [text], fresh)
        return result

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete the object and wait until it is gone."""
        await delete_object(self.cluster, call, id, old_inputs, olds)


def _known(manifest: Properties) -> dict[str, Any]:
    return {key: manifest[key] for key in ("apiVersion", "kind") if isinstance(manifest.get(key), str)}


def _with_namespace(inputs: Properties, namespace: str) -> Properties:
    metadata = reveal(inputs.get("metadata"))
    if metadata is UNKNOWN or (isinstance(metadata, Mapping) and metadata.get("namespace")):
        return inputs
    return with_metadata(inputs, namespace=namespace)
