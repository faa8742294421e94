"""Client of a stack's cluster for a destroy: lists, deletes, removes finalizers, and waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from gpuform.checkout.errors import Failure, OperationError
from gpuform.checkout.listing import abbreviate, count_of
from gpuform.kubernetes.client import ApiError, Client, Unreachable
from gpuform.kubernetes.foreign import foreign_objects, queued_workloads
from gpuform.kubernetes.kubeconfig import resolve
from infra.model.base.guard_names import RELEASES

Json = dict[str, Any]
_T = TypeVar("_T")
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Kind:
    """A Kubernetes kind and its API path."""

    name: str
    group: str
    plural: str

    def path(self, namespace: str = "", name: str = "") -> str:
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.group}{within}/{self.plural}" + (f"/{name}" if name else "")


_CORE, _KARPENTER = "/api/v1", "/apis/karpenter.sh/v1"
POD = Kind("Pod", _CORE, "pods")
NODE = Kind("Node", _CORE, "nodes")
SERVICE = Kind("Service", _CORE, "services")
EVENT = Kind("Event", _CORE, "events")
CLAIM = Kind("PersistentVolumeClaim", _CORE, "persistentvolumeclaims")
VOLUME = Kind("PersistentVolume", _CORE, "persistentvolumes")
INGRESS = Kind("Ingress", "/apis/networking.k8s.io/v1", "ingresses")
DEPLOYMENT = Kind("Deployment", "/apis/apps/v1", "deployments")
STATEFUL_SET = Kind("StatefulSet", "/apis/apps/v1", "statefulsets")
JOB = Kind("Job", "/apis/batch/v1", "jobs")
CLAIM_TEMPLATE = Kind("ResourceClaimTemplate", "/apis/resource.k8s.io/v1", "resourceclaimtemplates")
BUDGET = Kind("PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets")
INFERENCE = Kind("InferenceService", "/apis/serving.kserve.io/v1beta1", "inferenceservices")
LEASE = Kind("Lease", "/apis/coordination.k8s.io/v1", "leases")
NODE_POOL = Kind("NodePool", _KARPENTER, "nodepools")
NODE_CLAIM = Kind("NodeClaim", _KARPENTER, "nodeclaims")
NODE_OVERLAY = Kind("NodeOverlay", "/apis/karpenter.sh/v1alpha1", "nodeoverlays")
NODE_CLASS = Kind("EC2NodeClass", "/apis/karpenter.k8s.aws/v1", "ec2nodeclasses")
WORKLOADS = {kind.name: kind for kind in (POD, DEPLOYMENT, STATEFUL_SET, JOB, INFERENCE, CLAIM_TEMPLATE)}


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
            answer = self._run(lambda: self._client.get(kind.path(namespace), params))
        except ApiError as error:
            if error.code == 404:
                return []
            raise _api_failure(kind, error) from None
        items: list[Json] = answer.get("items") or []
        return items

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        try:
            return self._run(lambda: self._client.find(kind.path(namespace, name)))
        except ApiError as error:
            raise _api_failure(kind, error) from None

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
                raise _api_failure(kind, error) from None

    def _run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return self._runner.run(call())


def _api_failure(kind: Kind, error: OperationError) -> Failure:
    return Failure(f"{kind.name}s of the cluster", str(error), "check the permissions of your access entry")


Say = Callable[[str], None]

_SHOWN = 5  # names in one line
_FIRST_S, _LONGEST_S = 0.1, 5.0
_REPEATED_S = 30.0  # an unchanged line is repeated after this: a CI log shows that it still waits


@dataclass(frozen=True)
class Remaining:
    """Something that should be gone; ``why`` it is not, if known."""

    kind: str
    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.why})" if self.why else self.name


class StillExists(Exception):
    """The time is up; ``remaining`` still exists."""

    def __init__(self, remaining: Sequence[Remaining], seconds: float) -> None:
        self.remaining, self.seconds = tuple(remaining), seconds
        super().__init__(f"{summarise(remaining)} after {seconds:g} s")


def remaining_object(kind: Kind, item: Mapping[str, Any]) -> Remaining:
    finalizers = item["metadata"].get("finalizers") or ()
    return Remaining(kind.name, name_of(item), f"finalizer {', '.join(finalizers)}" if finalizers else "")


def summarise(remaining: Sequence[Remaining]) -> str:
    """As in ``2 NodeClaims left: a (finalizer x), b; 1 NodePool left: c``."""
    kinds = list(dict.fromkeys(item.kind for item in remaining))
    return "; ".join(_format_kind(kind, [item for item in remaining if item.kind == kind]) for kind in kinds)


def _format_kind(kind: str, remaining: Sequence[Remaining]) -> str:
    return f"{count_of(len(remaining), kind)} left: {abbreviate([str(item) for item in remaining], _SHOWN)}"


def require_deleted(
    subject: str, find_remaining: Callable[[], Iterable[Remaining]], seconds: float, say: Say, remedy: str
) -> None:
    """As `wait_until_deleted`; Failure of ``subject`` with ``remedy`` when the time is up."""
    try:
        wait_until_deleted(lambda: list(find_remaining()), seconds, say)
    except StillExists as timeout:
        raise Failure(f"destroy: {subject}", str(timeout), remedy) from None


def wait_until_deleted(find_remaining: Callable[[], Sequence[Remaining]], seconds: float, say: Say) -> None:
    """Return once ``look`` returns nothing; ``look`` may also request the deletions.

    ``say`` is called when what is left changes, and every half a minute. Raises StillThere when the time is
    up. A cluster that does not answer for a moment is queried again.
    """
    began, pause, printed, printed_at = time.monotonic(), _FIRST_S, "", 0.0
    remaining: Sequence[Remaining] = ()
    while True:
        try:
            remaining = find_remaining()
            text = summarise(remaining)
        except Unreachable as problem:
            remaining = remaining or [Remaining("answer", "of the cluster")]
            text = str(problem)
        if not remaining:
            return
        now = time.monotonic()
        if text != printed or now - printed_at > _REPEATED_S:
            printed, printed_at = text, now
            say(text)
        if now - began >= seconds:
            raise StillExists(remaining, seconds)
        time.sleep(min(pause, max(seconds - (now - began), 0.01)))
        pause = min(pause * 1.5, _LONGEST_S)
