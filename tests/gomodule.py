"""Files from Go modules that are pinned below ``toolchain/``: third-party charts and units."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuform.errors import Failure, InputError
from gpuform.offline.module_files import Source, cached
from gpuform.paths import Paths


def files(source: Source, pinned: str) -> Path:
    """Folder with the files of ``source``, pinned in ``toolchain/<pinned>``; skips if unavailable."""
    here = Paths.here()
    try:
        return cached(source, here.root / "toolchain" / pinned, here.cache)
    except (Failure, InputError) as why:
        pytest.skip(str(why))
