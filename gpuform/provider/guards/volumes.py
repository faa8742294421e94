"""Volumes that exist: no update changes their size or class, whatever the stack file declares.

A claim grows by hand only and never shrinks (kubernetes.io/docs/concepts/storage/persistent-volumes); the
template of a StatefulSet is for new claims (prometheus-operator.dev/docs/platform/storage).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Client
from infra.model.base.quantities import quantity


async def find_conflicts(connect: Callable[[], Client], before: Any, after: Any) -> list[str]:
    """Changes since the last run that no claim follows; its record counts offline and without an answer."""
    records, conflicts = before.get("volumes", None if before else {}), list[str]()
    for name, new in sorted((after.get("volumes") or {}).items()) if records is not None else ():
        old, note, (namespace, claim) = records.get(name), "", name.split("/")
        if old and old | {"at": new["at"]} == new:
            continue
        try:
            found = await connect().find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
            if found or not os.environ.get("GPUFORM_OFFLINE"):
                old = _read(found) if found and not found["metadata"].get("deletionTimestamp") else None
        except OperationError as error:
            note = f" (as of the last update: the cluster cannot be read, {error})"
        if old and (kept := _kept(new, old)):
            how = f"delete pvc {claim} --wait=false` for a new and empty one"
            if quantity(new["size"]) > quantity(old["size"]):
                patch = json.dumps({"spec": {"resources": {"requests": {"storage": new["size"]}}}})
                how = f"patch pvc {claim} -p '{patch}'` if its class has allowVolumeExpansion, and wait"
            fact = f"{new['at']}: the volume of claim {claim} has {kept}, which no update changes{note}"
            conflicts.append(f"{fact}; write {kept}, or first run `kubectl -n {namespace} {how}")
    return conflicts


def _read(claim: Any) -> dict[str, Any]:
    request = claim["spec"]["resources"]["requests"]["storage"]
    size = claim.get("status", {}).get("capacity", {}).get("storage", request)
    return {"request": request, "size": size, "storage_class": claim["spec"].get("storageClassName")}


def _kept(new: Any, old: Any) -> str:
    """What the volume keeps, although ``new`` has another value; empty if they agree."""
    size, request, storage_class = old["size"], old.get("request", old["size"]), old.get("storage_class")
    if not quantity(request) <= quantity(new["size"]) <= quantity(size):
        return str(size if quantity(new["size"]) > quantity(size) else request)
    return storage_class if storage_class and new.get("storage_class", storage_class) != storage_class else ""
