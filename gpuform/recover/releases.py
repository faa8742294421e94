"""Helm releases that a killed run left pending: helm refuses every further step until they are settled."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuform.plugins.kubernetes import release_history as history
from gpuform.plugins.kubernetes.client import Client
from gpuform.plugins.kubernetes.release_helm import Helm
from gpuform.plugins.kubernetes.release_history import Revision
from gpuform.recover.plan import FOR_YOU, Release

TYPE = "kubernetes:helm.sh/v3:Release"
QUIET_S = 180
"""How old a pending revision is before it is touched: a helm of another machine may be at work on it."""


@dataclass(frozen=True)
class Found:
    """One release as the cluster has it.

    ``since`` is when its newest revision was begun, ``stored`` what helm's Secret of that one holds.
    """

    id: str
    revisions: tuple[Revision, ...]
    since: datetime | None
    stored: str = ""

    @property
    def newest(self) -> Revision | None:
        """The newest revision; None where there is no such release."""
        return self.revisions[-1] if self.revisions else None

    def made_by(self, urn: str, inputs: Mapping[str, Any]) -> bool:
        """Whether a resource with these inputs made it.

        Our stand-in labels its releases. One without a label counts as made by the official provider where
        it is a first revision of the same chart and values; the name of a chart in a folder is not compared.
        """
        if self.newest is None:
            return False
        if self.newest.owner:
            return self.newest.owner == history.owner(urn)
        content = _unpacked(self.stored)
        chart = content["chart"]["metadata"]
        reference, version = str(inputs.get("chart")), str(inputs.get("version") or "")
        published = reference.startswith("oci://") or (inputs.get("repositoryOpts") or {}).get("repo")
        named = not published or reference.rpartition("/")[2] == chart["name"]
        pinned = not version or version.lstrip("v") == chart["version"].lstrip("v")
        same = (content.get("config") or {}) == (inputs.get("values") or {})
        return self.newest.number == 1 and named and pinned and same


async def read(client: Client, id: str) -> Found:
    """The revisions that helm keeps of ``NAMESPACE/NAME``."""
    namespace, _, name = id.partition("/")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    answer = await client.get(path, {"labelSelector": f"owner=helm,name={name}"})
    kept = sorted(
        ((Revision.of(item["metadata"]), item) for item in answer["items"]), key=lambda pair: pair[0].number
    )
    if not kept:
        return Found(id, (), None)
    newest = kept[-1][1]
    since = datetime.fromisoformat(newest["metadata"]["creationTimestamp"])
    return Found(id, tuple(revision for revision, _ in kept), since, newest["data"]["release"])


def _unpacked(stored: str) -> dict[str, Any]:
    """A release as helm writes it: gzipped JSON, in base64 as in every Secret and once more by helm."""
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(stored))))
    return content


def settled(urn: str, found: Found, ours: bool, helm: Helm, now: datetime) -> Release | None:
    """What becomes of a release; None where it is not pending.

    ``ours`` is where the state has it, or this resource made it. Never touched are one that a helm of ours
    is at work on, a young one, and an upgrade by hand.
    """
    newest = found.newest
    if newest is None or not newest.pending or found.since is None:
        return None

    def release(does: Any, why: str, revision: int | None = None) -> Release:
        return Release(urn, found.id, newest.status, does, why, newest.number, revision)

    labelled = [one for one in found.revisions if one.owner]
    if not ours:
        return release(FOR_YOU, "this stack did not make it")
    if labelled and newest.status != "pending-rollback" and newest.made_as != newest.number:
        return release(FOR_YOU, f"revision {newest.number} is by somebody's own hand; wait for it")
    if helm.busy(found.id):
        return release(FOR_YOU, "a helm that this checkout started is at work on it; wait for it")
    age = (now - found.since).total_seconds()
    if age < QUIET_S:
        wait = f"it was begun {max(age, 0):.0f} s ago; look again in {QUIET_S - age:.0f} s"
        return release(FOR_YOU, f"a helm on another machine may still be at work: {wait}")
    good = history.last_good(found.revisions)
    if good:
        return release("roll back", f"revision {newest.number} never ended", good.number)
    return release("uninstall", "its first installation never ended")


async def settle(helm: Helm, release: Release, client: Client) -> str:
    """Do what was planned, if the release is still as it was; a line that says so. Raises HelmError."""
    namespace, _, name = release.id.partition("/")
    async with helm.alone(release.id) as alone:
        newest = (await read(client, release.id)).newest
        if newest is None or (newest.number, newest.status) != (release.newest, release.status):
            return f"release {release.id} is no longer {release.status}"
        if release.does == "roll back":
            await alone.run("rollback", name, str(release.revision), "--namespace", namespace)
            return f"release {release.id}: rolled back to revision {release.revision}"
        await alone.run("uninstall", name, "--namespace", namespace, "--ignore-not-found")
        return f"release {release.id}: uninstalled"


def id_of(resource: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """``NAMESPACE/NAME``; one that the engine does not know yet is where its inputs say."""
    known = resource.get("id")
    return str(known) if known else f"{inputs.get('namespace') or 'default'}/{inputs.get('name')}"
