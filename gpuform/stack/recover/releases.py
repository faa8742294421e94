"""Helm releases that a killed run left pending: Helm refuses further operations until they are resolved."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuform.checkout import scratch
from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Client
from gpuform.stack.recover.plan import MANUAL, Release

QUIET_S = 180
"""Seconds before a pending revision may be changed: another machine may be working on it."""
QUIET_HERE_S = 10
"""The same on the embedded control plane: the provider of a run on this machine ends with its engine."""
_PENDING = ("pending-install", "pending-upgrade", "pending-rollback")
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class StoredRelease:
    """The newest revision of a release; ``number`` is 0 if the cluster has none.

    ``since`` is when it began, ``stored`` the content of Helm's Secret, ``secret`` that Secret's name and
    ``version`` its resourceVersion. ``completed`` is the revision to roll back to, 0 without one.
    """

    id: str
    number: int = 0
    status: str = ""
    since: datetime | None = None
    stored: str = ""
    secret: str = ""
    version: str = ""
    completed: int = 0

    @property
    def is_pending(self) -> bool:
        return self.status in _PENDING

    def is_made_by(self, inputs: Mapping[str, Any]) -> bool:
        """Whether a resource with these inputs installed it: a first revision of the same chart and values.

        The name of a chart in a folder is not compared.
        """
        if self.number != 1:
            return False
        content = _unpack(self.stored)
        chart = content["chart"]["metadata"]
        reference, version = str(inputs.get("chart")), str(inputs.get("version") or "")
        published = reference.startswith("oci://") or (inputs.get("repositoryOpts") or {}).get("repo")
        same_name = not published or reference.rpartition("/")[2] == chart["name"]
        same_version = not version or version.lstrip("v") == chart["version"].lstrip("v")
        same_values = (content.get("config") or {}) == (inputs.get("values") or {})
        return bool(same_name and same_version and same_values)


async def read_release(client: Client, id: str) -> StoredRelease:
    """The newest revision that Helm has stored of ``NAMESPACE/NAME``."""
    namespace, _, name = id.partition("/")
    answer = await client.get(_secrets(namespace), {"labelSelector": f"owner=helm,name={name}"})
    revisions = {int(item["metadata"]["labels"]["version"]): item for item in answer["items"]}
    if not revisions:
        return StoredRelease(id)
    newest = revisions[max(revisions)]
    metadata = newest["metadata"]
    status = {number: item["metadata"]["labels"]["status"] for number, item in sorted(revisions.items())}
    completed = [number for word in ("superseded", "deployed") for number in status if status[number] == word]
    return StoredRelease(
        id,
        number=max(revisions),
        status=status[max(revisions)],
        since=datetime.fromisoformat(metadata["creationTimestamp"]),
        stored=newest["data"]["release"],
        secret=metadata["name"],
        version=metadata["resourceVersion"],
        completed=completed[-1] if completed else 0,
    )


def plan_release(
    urn: str, stored: StoredRelease, is_own: bool, now: datetime, quiet_s: int = QUIET_S
) -> Release | None:
    """How to resolve a release; None if it is not pending.

    ``ours``: the state has it, or this resource created it. A young one is left alone. An upgrade is rolled
    back: a further upgrade would not delete what the interrupted one had added.
    """
    if not stored.is_pending or stored.since is None:
        return None

    def release(does: Any, why: str, revision: int | None = None) -> Release:
        return Release(urn, stored.id, stored.status, does, why, stored.number, revision)

    if not is_own:
        return release(MANUAL, "not created by this stack")
    age = (now - stored.since).total_seconds()
    if age < quiet_s:
        wait = f"it began {max(age, 0):.0f} s ago; run again in {quiet_s - age:.0f} s"
        return release(MANUAL, f"another run may still be working on it: {wait}")
    if stored.completed:
        return release("roll back", f"revision {stored.number} was never completed", stored.completed)
    return release("mark failed", "its first installation was never completed; the next up upgrades it")


async def resolve_release(client: Client, release: Release, helm: Path, folder: Path) -> str:
    """Execute the plan if the release is unchanged; returns a line that says so.

    ``mark failed`` writes what Helm itself writes when an installation ends with an error: Helm upgrades such
    a release. ``runs`` is a folder for a kubeconfig while ``helm`` runs. Raises OperationError.
    """
    stored = await read_release(client, release.id)
    if (stored.number, stored.status) != (release.newest, release.status):
        return f"release {release.id} is no longer {release.status}"
    if release.revision:
        _roll_back(client, release, helm, folder)
        return f"release {release.id}: rolled back to revision {release.revision}"
    content = _unpack(stored.stored)
    content["info"] |= {"status": "failed", "description": f"{stored.status} was interrupted"}
    body = {
        "metadata": {"resourceVersion": stored.version, "labels": {"status": "failed"}},
        "data": {"release": _pack(content)},
    }
    namespace = release.id.partition("/")[0]
    path = f"{_secrets(namespace)}/{stored.secret}"
    await client.request("PATCH", path, body=body, content_type=_MERGE)
    return f"release {release.id}: revision {stored.number} marked as failed; the next up upgrades it"


def _roll_back(client: Client, release: Release, helm: Path, parent: Path) -> None:
    namespace, _, name = release.id.partition("/")
    with scratch.folder(parent) as folder:
        kubeconfig = folder / "kubeconfig"  # only this user can read the folder
        kubeconfig.write_text(json.dumps(client.access.document))
        command = ("rollback", name, str(release.revision), "-n", namespace, "--kubeconfig", kubeconfig)
        result = subprocess.run([helm, *command], capture_output=True, text=True)
    if result.returncode:
        raise OperationError(
            result.stderr.rpartition("Error: ")[2].strip() or f"helm ended with {result.returncode}"
        )


def release_id(resource: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """``NAMESPACE/NAME``; from the inputs if the engine has no id yet."""
    known = resource.get("id")
    return str(known) if known else f"{inputs.get('namespace') or 'default'}/{inputs.get('name')}"


def _secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def _unpack(stored: str) -> dict[str, Any]:
    """A release as Helm stores it: gzipped JSON, in base64 by Helm and once more as in every Secret."""
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(stored))))
    return content


def _pack(content: Mapping[str, Any]) -> str:
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    return base64.b64encode(packed).decode()
