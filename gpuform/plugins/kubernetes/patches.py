"""Patch resources: a few fields of an object that somebody else made."""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.plugins.handler import Call, Change, PluginError, Properties
from gpuform.plugins.kubernetes import manifests
from gpuform.plugins.kubernetes.client import ApiError, Unreachable
from gpuform.plugins.kubernetes.messages import refusal, subject
from gpuform.plugins.kubernetes.naming import field_manager, split_id
from gpuform.plugins.kubernetes.objects import Objects
from gpuform.plugins.properties import UNKNOWN, has_unknown, reveal

_IDENTITY = ("kind", "metadata.name", "metadata.namespace")


class Patches(Objects):
    """``kubernetes:core/v1:NodePatch`` and its like: applied to an existing object, taken off on delete.

    The fields get a field manager of their own; annotation pulumi.com/patchFieldManager names another one,
    pulumi.com/patchForce takes fields over. Nothing is replaced but a patch that moves to another object, and
    nobody waits: whether the object is ready is its owner's affair.
    """

    waits = False

    def name(self, call: Call, olds: Properties, inputs: Properties) -> Properties:
        """A patch needs the name of what it patches."""
        metadata = reveal(inputs.get("metadata"))
        if metadata is not UNKNOWN and not (isinstance(metadata, Mapping) and metadata.get("name")):
            raise PluginError(f"{call.name}: a patch needs metadata.name, the object that it changes")
        return inputs

    def replaces(self, news: Properties, olds: Properties, asked: Mapping[str, Change]) -> list[str]:
        """Only another object makes it another patch."""
        return [path for path in asked if path in _IDENTITY]

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        """Apply the fields to the object, which must exist."""
        if call.preview and has_unknown(news):
            return "", news
        try:
            found = await self.cluster.type_of(news)
        except Unreachable as problem:
            if not call.preview:
                raise
            await self.cluster.preview_without(call, problem)
            return "", news
        body = manifests.payload(news)
        metadata = body["metadata"]
        namespace = metadata.get("namespace") or self.cluster.access.namespace
        path = found.path(namespace, metadata["name"]) if found else ""
        if found is None or await self.cluster.client.find(path) is None:
            if call.preview:
                return "", news
            raise PluginError(f"{subject(body)}: there is no such object to patch; create it first")
        id = f"{namespace}/{metadata['name']}" if found.namespaced else str(metadata["name"])
        state = await self.applying.update(call, id, {}, news)
        return ("" if call.preview else id), state

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Give the fields up; the server removes those that nobody else manages. The object stays."""
        inputs = old_inputs or olds.get("__inputs") or {}
        api_version, kind = manifests.of_token(call.type)
        manifest = {"apiVersion": api_version, "kind": kind} | {
            key: inputs[key] for key in ("apiVersion", "kind") if key in inputs
        }
        found = await self.cluster.type_of(manifest)
        if found is None:
            return
        namespace, name = split_id(id)
        path = found.path(namespace or self.cluster.access.namespace, name)
        if await self.cluster.client.find(path) is None:
            return
        manager = manifests.annotation(inputs, manifests.PATCH_MANAGER)
        manager = manager or str(olds.get("__fieldManager") or field_manager(call.urn))
        body = {**manifest, "metadata": {"name": name} | ({"namespace": namespace} if namespace else {})}
        try:
            await self.cluster.client.apply(path, body, manager=manager, force=True)
        except ApiError as error:
            raise refusal(error, body, inputs) from None
