"""State files of local runs: repairs after a killed run, before the engine reads them, and their removal.

Every repair relies on what our own plugins do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.locks import release_dead
from gpuform.engine.pending import CREATING, MAGNUM, RELEASE, UPDATING
from gpuform.engine.places import Places, write
from infra.model.losses import GUARD

# Type prefixes of providers that resume a killed create of the same resource. A pending create of any other
# provider stays in the state, and the engine warns of it.
RESUMING = ("gpuform:",)
_PROVIDERS = "pulumi:providers:"
_MADE_UP = ("aws:", "openstack:")  # in offline runs, which create nothing, so any create can be resumed


def repair(checkpoint: Path, stack: str, offline: bool = False) -> list[str]:
    """Restore a damaged checkpoint from its backup and forget creates that will be resumed.

    Returns one line per repair. Raises Failure if the checkpoint is damaged and has no intact backup.
    """
    if not checkpoint.exists():
        return []
    # Left by a run with a backend address that did not come from backend.address.
    checkpoint.with_name(checkpoint.name + ".attrs").unlink(missing_ok=True)
    said = []
    content = _read(checkpoint)
    if content is None:
        content = _restore(checkpoint, stack)
        said.append(f"the state of stack {stack} was damaged; restored the engine's backup")
    forgotten = _forget_pending(content, (*RESUMING, *_MADE_UP) if offline else RESUMING)
    if forgotten:
        said.append(f"{forgotten} operation(s) of an interrupted run will be resumed")
    if said:
        write(checkpoint, json.dumps(content), 0o600)
    return said


def deployment(checkpoint: Path) -> dict[str, Any]:
    """The state as `pulumi stack export` prints it; empty if the checkpoint is missing or damaged."""
    content = _read(checkpoint) or {"checkpoint": {}}
    return {"deployment": content["checkpoint"].get("latest") or {}}


def _restore(checkpoint: Path, stack: str) -> dict[str, Any]:
    backup = _read(checkpoint.with_name(checkpoint.name + ".bak"))
    if backup is None:
        raise Failure(
            f"stack {stack}",
            f"its state is damaged and has no intact backup ({checkpoint})",
            "run 'make down' with --delete and start again; this deletes the embedded cluster, too",
        )
    return backup


def guarded(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the guards of a state have recorded, as one mapping; empty without guards."""
    found: dict[str, Any] = {}
    for one in (state.get("deployment") or {}).get("resources") or ():
        if one["type"] == GUARD:
            found |= one.get("inputs") or {}
    return found


def _forget_pending(content: dict[str, Any], resuming: tuple[str, ...]) -> int:
    """Drop pending operations that are resumed; a resource being updated or deleted stays in the state."""
    latest = content["checkpoint"].get("latest") or {}
    pending = latest.get("pending_operations") or []
    kept = [one for one in pending if not _resumes(one, resuming) or _settled(one, resuming)]
    if len(kept) < len(pending):
        latest["pending_operations"] = kept
    return len(pending) - len(kept)


def _settled(operation: dict[str, Any], resuming: tuple[str, ...]) -> bool:
    """Whether `gpuform.stack.recover.resume` settles the operation.

    Until then Helm refuses the next step, and Magnum would get a second resize during the first. Helm resumes
    an interrupted uninstall itself.
    """
    kind = str(operation["resource"]["type"])
    begun = kind == RELEASE or (kind.startswith(MAGNUM) and not kind.startswith(resuming))
    return begun and operation["type"] in (CREATING, UPDATING)


def _resumes(operation: dict[str, Any], resuming: tuple[str, ...]) -> bool:
    kind = str(operation.get("resource", {}).get("type", ""))
    return kind.startswith(resuming) or operation.get("type") != CREATING


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    sound = isinstance(content, dict) and isinstance(content.get("checkpoint"), dict)
    return content if sound else None


def forget(paths: Paths) -> None:
    """Remove the state of every stack, our PULUMI_HOME, wrapper and links; the stacks' resources stay.

    Raises Failure, and removes nothing, while a run holds one of the stacks, and as ``require_forgettable``.
    """
    require_forgettable(paths)
    places = Places(paths)
    for backend in (places.backend, Places(paths, offline=True).backend):
        for folder in backend.glob(".pulumi/locks/*/*/*"):
            release_dead(folder, folder.name)
    shutil.rmtree(places.folder, ignore_errors=True)
    shutil.rmtree(paths.shims, ignore_errors=True)


def require_forgettable(paths: Paths) -> None:
    """Raise Failure while a stack has resources outside the embedded cluster: only its state records them."""
    for file in sorted(Places(paths).backend.glob(".pulumi/stacks/*/*.json")):
        resources = deployment(file)["deployment"].get("resources") or ()
        if any(_elsewhere(one, paths.kubeconfig) for one in resources):
            raise Failure(
                f"stack {file.stem}",
                f"has {len(resources)} resources outside the embedded cluster, recorded only in this state",
                f"run 'gpuform destroy {file.stem}' first, or, if they are gone, remove {file}",
            )


def _elsewhere(resource: Mapping[str, Any], ours: Path) -> bool:
    kind = str(resource["type"])
    if kind == f"{_PROVIDERS}kubernetes":
        return (resource.get("inputs") or {}).get("kubeconfig") != str(ours)
    return kind.startswith(_PROVIDERS) and kind != f"{_PROVIDERS}gpuform"
