"""A Service and the two Deployments behind it, through the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Client
from gpuform.kubernetes.pods import condition, format_reason, not_ready_reason
from gpuform.provider.nodes.cluster import MERGE, Manifest
from infra.model.base import labels
from infra.plan import blue_green

MANAGER = "gpuform-blue-green"
TURNING = "gpuform.io/turning-from"
"""Annotation of the Service while a change of colour is under way: the colour to go back to."""
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class ColourState:
    """One colour: its requested replicas, its pods, and how many of these are ready or terminating.

    ``template`` is the digest of the pod template, ``live_replicas`` the replicas of the colour when it is
    live; both are empty without a Deployment.
    """

    replicas: int = 0
    pods: int = 0
    ready: int = 0
    terminating: int = 0
    template: str = ""
    live_replicas: int = 0

    @property
    def gpu_pods(self) -> int:
        """Number of pods that have GPUs or may take them: a terminating pod gets a successor at once."""
        return max(self.replicas, self.pods - self.terminating) + self.terminating


@dataclass(frozen=True)
class PairState:
    """Both colours, the one that the Service points to (empty without one), and the source of a rollout."""

    colours: Mapping[str, ColourState]
    live: str = ""
    source: str = ""

    @property
    def gpu_pods(self) -> int:
        return sum(state.gpu_pods for state in self.colours.values())


def opposite(colour: str) -> str:
    return labels.COLOURS[1 - labels.COLOURS.index(colour)]


class Pair:
    """A Service and two Deployments, derived from manifests without a colour."""

    def __init__(self, client: Client, deployment: Manifest, service: Manifest) -> None:
        self._client, self._deployment, self._service = client, deployment, service
        self.template = blue_green.template_hash(deployment)
        self.replicas = int(deployment["spec"]["replicas"])

    @property
    def title(self) -> str:
        return f"Deployment {self._namespace}/{self._deployment['metadata']['name']}"

    async def read_state(self) -> PairState:
        """The live state. Raises OperationError for an object of these names with another manager."""
        service = await self._find_own(self._service_path)
        colours = {colour: await self._colour_state(colour) for colour in labels.COLOURS}
        if service is None:
            return PairState(colours)
        live = str((service["spec"].get("selector") or {}).get(labels.COLOUR, ""))
        live = live if live in labels.COLOURS else ""
        return PairState(colours, live, (service["metadata"].get("annotations") or {}).get(TURNING, ""))

    async def apply_deployment(self, colour: str, replicas: int) -> None:
        body = blue_green.with_colour(self._deployment, colour, replicas)
        await self._apply(self._path(colour), body)

    async def scale(self, colour: str, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        params = {"fieldManager": MANAGER}
        path = self._path(colour)
        await self._client.request("PATCH", path, params=params, body=body, content_type=MERGE)

    async def apply_service(self, colour: str) -> None:
        """Apply the Service, pointing to a colour, and end the rollout."""
        await self._apply(self._service_path, blue_green.select_colour(self._service, colour))
        await self.set_source(None)

    async def switch_service(self, colour: str) -> None:
        """Change only the colour that the Service points to."""
        await self._patch_service({"spec": {"selector": {labels.COLOUR: colour}}})

    async def set_source(self, source: str | None) -> None:
        """Store the colour that a rollout can go back to; None removes it."""
        await self._patch_service({"metadata": {"annotations": {TURNING: source}}})

    async def unready_reasons(self, colour: str) -> list[str]:
        """Why pods of a colour are not ready, one line each, and why some could not be created."""
        reasons = [
            f"pod {pod['metadata']['name']}: {reason}"
            for pod in await self._pods(colour)
            if not pod["metadata"].get("deletionTimestamp") and (reason := not_ready_reason(pod))
        ]
        deployment = await self._client.find(self._path(colour))
        failure = condition(deployment or {}, "ReplicaFailure")
        return [*reasons, *([format_reason(failure)] if failure.get("status") == "True" else [])]

    async def delete(self) -> None:
        """Delete Service and Deployments, if they exist. Their pods end later."""
        for path in (self._service_path, *(self._path(colour) for colour in labels.COLOURS)):
            await self._client.delete(path, {"propagationPolicy": "Background"})

    async def _colour_state(self, colour: str) -> ColourState:
        # The Deployment first, then the pods: a pod created in between counts, one that ends may.
        live = await self._find_own(self._path(colour))
        pods = await self._pods(colour)
        ready = [pod for pod in pods if _ready(pod)]
        annotations = (live["metadata"].get("annotations") or {}) if live else {}
        return ColourState(
            replicas=int(live["spec"].get("replicas") or 0) if live else 0,
            pods=len(pods),
            ready=len(ready),
            terminating=sum(bool(pod["metadata"].get("deletionTimestamp")) for pod in pods),
            template=str(annotations.get(labels.TEMPLATE, "")),
            live_replicas=int(annotations.get(labels.FULL, 0)),
        )

    async def _pods(self, colour: str) -> list[Manifest]:
        """Pods that have not ended, terminating ones included."""
        selector = self._deployment["spec"]["selector"]["matchLabels"] | {labels.COLOUR: colour}
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in sorted(selector.items()))}
        items = (await self._client.get(f"/api/v1/namespaces/{self._namespace}/pods", query))["items"]
        return [pod for pod in items if (pod.get("status") or {}).get("phase") not in _ENDED]

    async def _find_own(self, path: str) -> Manifest | None:
        live = await self._client.find(path)
        managers = {
            entry.get("manager") for entry in (live or {"metadata": {}})["metadata"].get("managedFields", ())
        }
        if live is not None and MANAGER not in managers:
            name = f"{live['kind']} {self._namespace}/{live['metadata']['name']}"
            raise OperationError(
                f"{name}: it exists already, and not from a blue-green update; if it is the workload's own, "
                "remove the workload, update, and declare it again; else delete it, or give the workload "
                "another name"
            )
        return live

    async def _apply(self, path: str, body: Manifest) -> None:
        try:
            await self._client.apply(path, body, manager=MANAGER, force=True)
        except ApiError as error:
            name = f"{body['kind']} {self._namespace}/{body['metadata']['name']}"
            raise OperationError(f"{name}: {error}") from None

    async def _patch_service(self, body: Manifest) -> None:
        params = {"fieldManager": MANAGER}
        await self._client.request("PATCH", self._service_path, params=params, body=body, content_type=MERGE)

    @property
    def _namespace(self) -> str:
        return str(self._deployment["metadata"]["namespace"])

    @property
    def _service_path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/services/{self._service['metadata']['name']}"

    def _path(self, colour: str) -> str:
        name = blue_green.deployment_name(self._deployment, colour)
        return f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{name}"


def _ready(pod: Manifest) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and condition(pod, "Ready").get("status") == "True"
