"""Volumes that exist: an update changes neither their size nor their class, whatever the file declares.

A claim's request grows only by hand, and never falls (kubernetes.io/docs/concepts/storage/persistent-volumes,
"Expanding"); a StatefulSet does not pass its template on to claims that exist, and so prometheus-operator
does not either (prometheus-operator.dev/docs/platform/storage, "Resizing volumes").
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Client
from infra.model.quantities import quantity


@dataclass(frozen=True)
class _Volume:
    """``request`` is the claim's, ``size`` the volume's; ``expandable`` is None if it is not known."""

    request: str
    size: str
    storage_class: str | None
    expandable: bool | None = None
    note: str = ""


async def find_conflicts(
    connect: Callable[[], Client], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    """Declared sizes and classes that an existing volume does not get, each with what to do.

    Asks the cluster only about a change since the last run, or a new volume: its claim may be left from an
    earlier one. The last run's record counts if the cluster cannot be read, and in an offline preview.
    """
    if before and "volumes" not in before:  # of an earlier version
        return []
    conflicts: list[str] = []
    for name, declared in sorted(after["volumes"].items()):
        recorded = (before.get("volumes") or {}).get(name)
        keys = ("size", "class")
        if recorded and all(recorded.get(key) == declared.get(key) for key in keys):
            continue
        known = _Volume(recorded["size"], recorded["size"], recorded.get("class")) if recorded else None
        try:
            volume = await _read(connect(), name)
            volume = volume or (known if os.environ.get("GPUFORM_OFFLINE") else None)
        except OperationError as error:
            note = f" (as of the last update: the cluster cannot be read, {error})"
            volume = known and _Volume(known.request, known.size, known.storage_class, note=note)
        if volume:
            conflicts += _conflicts(name, declared, volume)
    return conflicts


async def _read(client: Client, name: str) -> _Volume | None:
    """The volume of a claim, None if there is none or it is about to go."""
    namespace, _, claim_name = name.partition("/")
    claim = await client.find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim_name}")
    if claim is None or claim["metadata"].get("deletionTimestamp"):
        return None
    request = str(claim["spec"]["resources"]["requests"]["storage"])
    size = str(((claim.get("status") or {}).get("capacity") or {}).get("storage") or request)
    storage_class = claim["spec"].get("storageClassName")
    try:
        found = await client.find(f"/apis/storage.k8s.io/v1/storageclasses/{storage_class}")
    except OperationError:
        found = None
    expandable = bool(found.get("allowVolumeExpansion")) if found else None
    return _Volume(request, size, storage_class, expandable)


def _conflicts(name: str, declared: Mapping[str, Any], volume: _Volume) -> Iterator[str]:
    namespace, _, claim = name.partition("/")
    kubectl = f"kubectl -n {namespace}"
    anew = f"or, for a new and empty one, first run: {kubectl} delete pvc {claim} --wait=false"
    what, wanted, note = f"the volume of claim {name}", str(declared["size"]), volume.note
    if quantity(wanted) > quantity(volume.size):
        patch = json.dumps({"spec": {"resources": {"requests": {"storage": wanted}}}})
        steps = f"{kubectl} patch pvc {claim} -p '{patch}', wait until `kubectl get pvc` shows {wanted}"
        if volume.expandable is False:
            allowed = (
                f"""kubectl patch storageclass {volume.storage_class} -p '{{"allowVolumeExpansion": true}}'"""
            )
            steps = f"{allowed} if the driver of this class can enlarge volumes, {steps}"
        fact = f"an update does not enlarge {what}, from {volume.size} to {wanted}{note}"
        yield f"{declared['at']}.size: {fact}; write {volume.size}, or first run: {steps}"
    elif quantity(wanted) < quantity(volume.request):
        fact = f"{what} cannot shrink from {volume.request} to {wanted}{note}"
        yield f"{declared['at']}.size: {fact}; write {volume.request}, {anew}"
    if declared.get("class") and volume.storage_class not in (None, declared["class"]):
        fact = f"{what} stays in class {volume.storage_class}{note}"
        yield f"{declared['key']}: {fact}; write {volume.storage_class}, {anew}"
