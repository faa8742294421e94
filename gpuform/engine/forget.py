"""Forgets everything that the engine knows of this checkout."""

from __future__ import annotations

import shutil

from gpuform.engine.locks import release_dead
from gpuform.engine.places import Places
from gpuform.paths import Paths


def forget(paths: Paths) -> None:
    """Remove the state of every stack, our PULUMI_HOME, wrapper and links; what the stacks made stays.

    Raises Failure while a run holds one of the stacks, and removes nothing then.
    """
    places = Places(paths)
    for backend in (places.backend, Places(paths, offline=True).backend):
        for folder in backend.glob(".pulumi/locks/*/*/*"):
            release_dead(folder, folder.name)
    shutil.rmtree(places.folder, ignore_errors=True)
    shutil.rmtree(paths.shims, ignore_errors=True)
