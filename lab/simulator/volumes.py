"""Volumes for claims of our storage class, made as an external provisioner does; objects only, no storage.

The controller manager names the provisioner in a claim, and the scheduler a node once a pod uses it; what it
has provisioned, an external provisioner deletes (k8s.io/component-helpers, storage/volume/pv_helpers.go;
kubernetes/design-proposals-archive, storage/container-storage-interface.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import httpx

from lab.simulator.api import Api

Json = Mapping[str, Any]
VOLUME_CLAIMS = "/api/v1/persistentvolumeclaims"
PROVISIONER = "simulator.gpuform.io/volumes"
_VOLUMES = "/api/v1/persistentvolumes"
_PROVISIONER, _NODE = "volume.kubernetes.io/storage-provisioner", "volume.kubernetes.io/selected-node"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_PAUSE_S = 1.0
log = logging.getLogger("simulator")


class Volumes:
    """Creates the volume of each claim that a pod uses, and deletes it with the claim."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._names: dict[tuple[str, str], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, claim: Json, _: bool = False, gone: bool = False) -> None:
        meta, annotations = claim["metadata"], claim["metadata"].get("annotations") or {}
        key = meta["namespace"], meta["name"]
        if gone:
            if name := self._names.pop(key, None):
                self._schedule("DELETE", {"metadata": {"name": name}})
        elif annotations.get(_PROVISIONER) == PROVISIONER and _NODE in annotations and key not in self._names:
            self._names[key] = f"pvc-{meta['uid']}"
            self._schedule("POST", volume_manifest(claim))

    def _schedule(self, method: str, body: Json) -> None:
        task = asyncio.ensure_future(self._send(method, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, method: str, body: Json) -> None:
        """Again while the server does not answer; a volume that exists, or has gone, is fine."""
        name = body["metadata"]["name"]
        while True:
            try:
                if method == "POST":
                    await self._api.create(_VOLUMES, dict(body))
                else:
                    await self._api.delete(f"{_VOLUMES}/{name}", {})
                return
            except httpx.HTTPError as error:
                code = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 500
                if code not in (404, 409):
                    log.warning("volume %s: %s", name, error or type(error).__name__)
                if code < 500:
                    return
            await asyncio.sleep(_PAUSE_S)


def volume_manifest(claim: Json) -> Json:
    """The volume of a claim; a host path needs no attachment, and no kubelet mounts it."""
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": dict(spec["resources"]["requests"]),
            "accessModes": spec["accessModes"],
            "storageClassName": spec.get("storageClassName"),
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {key: meta[key] for key in ("namespace", "name", "uid")},
            "hostPath": {"path": f"/simulated/{name}"},
        },
    }
