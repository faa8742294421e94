"""What a stack with monitoring needs: programs for their sidecar, and prometheus-operator's kinds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from gpuform.checkout.errors import Failure, InputError
from gpuform.engine.files import Tools
from lab.plane import lock
from lab.plane.layout import Layout, complete_pki
from lab.plane.processes import PROMETHEUS, STATE_METRICS
from lab.sidecars.shared.files import link
from lab.sidecars.shared.server import METADATA, SERVER_ERRORS, Server
from lab.toolchain.module_files import Source, cached_folder

PROGRAMS = (PROMETHEUS, "promtool", STATE_METRICS)
KINDS = ("prometheuses", "servicemonitors", "podmonitors", "prometheusrules")
"""The kinds that stacks declare. All ten make the API server 190 MiB larger, these 140 (measured)."""
_GROUP = "monitoring.coreos.com"
_VERSION = "operator.prometheus.io/version"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TIMEOUT_S = 60
CRDS = "toolchain/prometheus-operator-crds"
_CRDS = Source(
    "prometheus-operator-crds",
    "prometheus-operator's CRDs",
    "github.com/prometheus-operator/prometheus-operator",
    Path("example", "prometheus-operator-crd"),
    "monitoring.coreos.com_prometheusrules.yaml",
)


def define_kinds(layout: Layout, progress: Callable[[str], None]) -> None:
    """Define prometheus-operator's kinds in the cluster, without the programs that implement them."""
    with lock.file_lock(layout.lock, lambda: progress("waiting for another start or stop to end")):
        _define(layout, progress)


def prepare(layout: Layout, tools: Tools, progress: Callable[[str], None]) -> None:
    """Get the programs, link them for the keeper, and define prometheus-operator's kinds in the cluster."""
    if not layout.paths.kubeconfig.is_file() or not complete_pki(layout.pki):
        raise InputError(
            "monitoring", "the embedded control plane was never started", "`gpuform local start`"
        )
    tools.ensure(*PROGRAMS, progress=progress)
    folder = layout.monitor / "bin"
    with lock.file_lock(layout.lock, lambda: progress("waiting for another start or stop to end")):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in PROGRAMS:
            link(folder / name, tools.path(name))
        _define(layout, progress)


def _define(layout: Layout, progress: Callable[[str], None]) -> None:
    """Apply the CRDs that are missing or of another version, and wait until all are served."""
    paths = layout.paths
    source = crd_folder(paths.installation / CRDS, paths.cache)
    server = Server(paths.kubeconfig, layout.pki)
    try:
        found = {item["metadata"]["name"]: item["metadata"] for item in server.items(_DEFINITIONS, METADATA)}
        notes = {kind: found.get(f"{kind}.{_GROUP}", {}).get("annotations") or {} for kind in KINDS}
        texts = {kind: (source / f"{_GROUP}_{kind}.yaml").read_text(encoding="utf-8") for kind in KINDS}
        stale = {kind: crd for kind, crd in texts.items() if notes[kind].get(_VERSION) != _crd_version(crd)}
        if stale:
            progress("installing prometheus-operator's CRDs")
        for kind, text in stale.items():
            server.apply(f"{_DEFINITIONS}/{kind}.{_GROUP}", text)
        _wait_until_served(server)
    except SERVER_ERRORS as error:
        fact = f"does not accept prometheus-operator's CRDs ({error or type(error).__name__})"
        raise Failure("embedded control plane", fact, "`gpuform local start`") from None


def _wait_until_served(server: Server) -> None:
    """Return once each kind can be listed; errors as ``Server.ask``."""
    deadline = time.monotonic() + _TIMEOUT_S
    for kind in KINDS:
        while True:
            try:
                server.ask(f"/apis/{_GROUP}/v1/{kind}?limit=1")
                break
            except ValueError:  # not known yet, or its storage is not ready
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)


def _crd_version(definition: str) -> str:
    """The version annotation of a CRD; matched in the text, since it is long and PyYAML is slow."""
    match = re.search(rf"{re.escape(_VERSION)}: (\S+)", definition)
    return match[1].strip('"') if match else ""


def crd_folder(pinned: Path, cache: Path) -> Path:
    """Folder with ``monitoring.coreos.com_<plural>.yaml`` of each kind; fetched once, then cached.

    ``pinned`` is the folder of the go.mod that requires the version. One file contains a bare ``=`` as a
    value, which PyYAML's safe loader refuses. Raises Failure if the module cannot be fetched, InputError if
    Go is missing.
    """
    return cached_folder(_CRDS, pinned, cache)
