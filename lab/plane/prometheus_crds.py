"""prometheus-operator's CRDs, from its Go module: one file for each kind, as the chart installs them."""

from __future__ import annotations

from pathlib import Path

from lab.toolchain.module_files import Source, cached

FOLDER = "toolchain/prometheus-operator-crds"
_CRDS = Source(
    "prometheus-operator-crds",
    "prometheus-operator's CRDs",
    "github.com/prometheus-operator/prometheus-operator",
    Path("example", "prometheus-operator-crd"),
    "monitoring.coreos.com_prometheusrules.yaml",
)


def crds(pinned: Path, cache: Path) -> Path:
    """Folder with ``monitoring.coreos.com_<plural>.yaml`` of each kind; fetched once, then cached.

    ``pinned`` is the folder of the go.mod that requires the version. One file contains a bare ``=`` as a
    value, which PyYAML's safe loader refuses. Raises Failure if the module cannot be fetched, InputError if
    Go is missing.
    """
    return cached(_CRDS, pinned, cache)
