"""Karpenter's CRDs, from its Go modules: its own chart of them, and that of its provider for kwok.

The chart is the one published chart that a package proxy has.
"""

from __future__ import annotations

from pathlib import Path

from gpuform.offline.module_files import Source, cached

MODULE = "github.com/aws/karpenter-provider-aws"
FOLDER = "toolchain/karpenter-crds"
CORE = "sigs.k8s.io/karpenter"
CORE_FOLDER = "toolchain/karpenter"
_CALLED = "Karpenter's CRDs"
_CHART = Source("karpenter-crds", _CALLED, MODULE, Path("charts", "karpenter-crd"), "Chart.yaml")
_KWOK = Source(
    "karpenter-kwok-crds",
    _CALLED,
    CORE,
    Path("kwok", "apis", "crds"),
    "karpenter.kwok.sh_kwoknodeclasses.yaml",
)


def chart(pinned: Path, cache: Path) -> Path:
    """Folder with the chart of the version that ``pinned``/go.mod requires; fetched once, then cached.

    Raises Failure where the module is not to be had, InputError where no Go is.
    """
    return cached(_CHART, pinned, cache)


def kwok_node_class(pinned: Path, cache: Path) -> Path:
    """File with the CRD of KWOKNodeClass, of the core's version in ``pinned``/go.mod; as ``chart``."""
    return cached(_KWOK, pinned, cache) / _KWOK.proof
