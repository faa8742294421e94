"""One cluster's objects, read and changed by synchronous code; kinds and their API paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from gpuform.checkout.errors import Failure, OperationError
from gpuform.kubernetes.client import UNREACHABLE, ApiError, Client, Unreachable
from gpuform.kubernetes.foreign import foreign_objects, queued_workloads
from gpuform.kubernetes.kinds import Kind
from gpuform.kubernetes.kubeconfig import load_access, resolve
from gpuform.kubernetes.kubeconfig_errors import Forbidden
from infra.model.base.guard_names import RELEASES

Json = dict[str, Any]
_T = TypeVar("_T")
_MERGE = "application/merge-patch+json"
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_PAGE = "500"
"""Objects in one answer, as kubectl's --chunk-size."""


def name_of(item: Mapping[str, Any]) -> str:
    """``namespace/name``, or the name alone."""
    metadata = item["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def is_deleting(item: Mapping[str, Any]) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))


class Cluster:
    """One cluster, over kept-alive connections; a context manager.

    Raises Failure for an error answer, the client's `Unreachable` without an answer. A kind that the cluster
    does not have counts as without objects.
    """

    def __init__(self, access: Path | str, context: str | None = None) -> None:
        """``access`` is a kubeconfig: a file, or its content; ``context`` None is its current one."""
        self._client = Client(resolve({"kubeconfig": str(access), "context": context}, {}))
        self._runner = asyncio.Runner()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def unreachable_reason(self) -> str:
        """Empty if the cluster answers, else the reason why it does not."""
        try:
            self._run(lambda: self._client.get("/version"))
        except OperationError as problem:  # a cluster that denies access counts as unreachable
            return str(problem)
        return ""

    def list_objects(self, kind: Kind, namespace: str = "", **params: str) -> list[Json]:
        """Every object of a kind, in all namespaces or one; ``params`` are the API's query parameters."""
        try:
            return self._run(lambda: self._pages(kind.path(namespace), {"limit": _PAGE, **params}))
        except ApiError as error:
            if error.code == 404:
                return []
            raise self._failure(kind, error) from None

    async def _pages(self, path: str, params: Mapping[str, str]) -> list[Json]:
        items, token = list[Json](), ""
        while True:
            answer = await self._client.get(path, {**params, "continue": token} if token else params)
            items += answer.get("items") or ()
            if not (token := (answer.get("metadata") or {}).get("continue") or ""):
                return items

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        try:
            return self._run(lambda: self._client.find(kind.path(namespace, name)))
        except ApiError as error:
            raise self._failure(kind, error) from None

    def list_foreign(self, namespace: str, environment: str) -> list[str]:
        """What the environment did not create in a namespace, and volume claims."""
        return self._run(lambda: foreign_objects(self._client, namespace, environment, RELEASES))

    def list_queued(self, environment: str) -> dict[str, list[str]]:
        """What the environment did not create and has not ended, by its ClusterQueue."""
        return self._run(lambda: queued_workloads(self._client, environment))

    def delete(self, kind: Kind, item: Mapping[str, Any], with_owned: bool = False) -> None:
        """Delete an object that is not being deleted yet; a missing object is fine.

        ``with_owned``: foreground deletion, so the object stays until its dependents are gone.
        """
        if is_deleting(item):
            return
        metadata = item["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if with_owned else "Background",
            "preconditions": {"uid": metadata["uid"]},  # not a new object of the same name
        }
        self._request("DELETE", kind, metadata, body, "application/json")

    def patch(self, kind: Kind, item: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        """Merge ``body`` into an object; a missing object is fine."""
        self._request("PATCH", kind, item["metadata"], body, _MERGE)

    def remove_finalizers(self, kind: Kind, item: Mapping[str, Any], finalizers: tuple[str, ...]) -> None:
        current = item["metadata"].get("finalizers") or []
        kept = [finalizer for finalizer in current if finalizer not in finalizers]
        if kept != current:
            self.patch(kind, item, {"metadata": {"finalizers": kept, "uid": item["metadata"]["uid"]}})

    def _request(
        self, method: str, kind: Kind, metadata: Mapping[str, Any], body: Mapping[str, Any], content: str
    ) -> None:
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        try:
            self._run(lambda: self._client.request(method, path, body=body, content_type=content))
        except ApiError as error:
            if error.code not in (404, 409):  # 409: a new object of this name, or changed meanwhile
                raise self._failure(kind, error) from None

    def _run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return self._runner.run(call())

    def _failure(self, kind: Kind, error: OperationError) -> Exception:
        return Failure(
            f"{kind.name}s of the cluster", str(error), "check the permissions of your access entry"
        )


class Reader(Cluster):
    """Raises OSError for every failure: PermissionError for rejected credentials, Forbidden without a right.

    InputError for a field of the kubeconfig that cannot be honoured.
    """

    def __init__(self, access: Path | str, context: str | None = None) -> None:
        load_access(access, context)
        super().__init__(access, context)

    def _run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        try:
            return super()._run(call)
        except Unreachable as problem:
            raise OSError(str(problem).removeprefix(UNREACHABLE)) from None

    def _failure(self, kind: Kind, error: OperationError) -> Exception:
        code = getattr(error, "code", 0)
        kinds = {_UNAUTHORIZED: PermissionError, _FORBIDDEN: Forbidden}
        return kinds.get(code, OSError)(f"HTTP {code}: {error}")
