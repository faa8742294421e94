"""Karpenter's CRD chart from its Go module: the only published chart that a package proxy has."""

from __future__ import annotations

from pathlib import Path

from lab.toolchain.module_files import Source, cached_folder

MODULE = "github.com/aws/karpenter-provider-aws"
FOLDER = "toolchain/karpenter-crds"
_CALLED = "Karpenter's CRDs"
_CHART = Source("karpenter-crds", _CALLED, MODULE, Path("charts", "karpenter-crd"), "Chart.yaml")


def chart(pinned: Path, cache: Path) -> Path:
    """Folder with the chart of the version that ``pinned``/go.mod requires; fetched once, then cached.

    Raises Failure if the module cannot be fetched, InputError if Go is missing.
    """
    return cached_folder(_CHART, pinned, cache)
