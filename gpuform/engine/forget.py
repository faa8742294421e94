"""Removes all engine state of this checkout."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine import checkpoint
from gpuform.engine.locks import release_dead
from gpuform.engine.places import Places

_PROVIDERS = "pulumi:providers:"


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
        resources = checkpoint.deployment(file)["deployment"].get("resources") or ()
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
