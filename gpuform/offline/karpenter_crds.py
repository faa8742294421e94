"""Karpenter's chart of its CRDs, from its Go module: the one published chart that a package proxy has."""

from __future__ import annotations

from pathlib import Path

from gpuform.offline.module_files import Source, cached

MODULE = "github.com/aws/karpenter-provider-aws"
FOLDER = "toolchain/karpenter-crds"
_CALLED = "Karpenter's CRDs"
_CHART = Source("karpenter-crds", _CALLED, MODULE, Path("charts", "karpenter-crd"), "Chart.yaml")


def chart(pinned: Path, cache: Path) -> Path:
    """Folder with the chart of the version that ``pinned``/go.mod requires; fetched once, then cached.

    Raises Failure where the module is not to be had, InputError where no Go is.
    """
    return cached(_CHART, pinned, cache)
