"""Downloads what tests need beside the tools: ``python -m tests.prepare [--all]``. Tests download nothing.

These are modules with third-party charts, CRDs and units, and the root file system of booted hosts; with
``--all`` also keystone and Magnum. Unavailable parts are reported; tests that need them skip or
fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from lab.offline import pinned_charts
from lab.plane import monitoring
from lab.sidecars.controllers.rows import CHARTS
from lab.toolchain.module_files import cached_folder
from lab.toolchain.progress import PlainReporter
from tests import external
from tests.bed import Refused, base, packages, refusal
from tests.checks import charts
from tests.openstack.installed import NotInstallable, install_services


def main(everything: bool) -> None:
    """Get each; a second run finds all of it in the caches."""
    root, cache = Paths.here().root, Paths.here().cache
    karpenter = root / pinned_charts.FOLDER
    steps: list[tuple[str, Callable[[], object]]] = [
        ("CRDs of Karpenter", lambda: pinned_charts.crds_chart(karpenter, cache)),
        ("CRDs of Prometheus", lambda: monitoring.crd_folder(root / monitoring.CRDS, cache)),
        (
            "manifests of KEDA",
            lambda: cached_folder(pinned_charts.SOURCE, root / "toolchain" / "keda", cache),
        ),
        (
            "charts of controllers",
            lambda: [
                pinned_charts.controller_chart(one, root / pinned_charts.pin_folder(one), cache)
                for one in CHARTS
            ],
        ),
        ("charts in Go modules", lambda: [charts.folder(name) for name in charts.IN_MODULES]),
        ("chart of NVIDIA's operator", charts.older_operator),
        ("MIG layouts of NVIDIA", external.mig_layouts),
        ("units of the container toolkit", packages.cdi_units),
        ("booted hosts", _hosts),
    ]
    if everything:
        steps.append(
            (
                "keystone and Magnum",
                lambda: install_services(PlainReporter(lambda line: print(line, flush=True))),
            )
        )
    for what, get in steps:
        try:
            get()
        except (pytest.skip.Exception, Refused, NotInstallable, Failure, InputError) as why:
            print(f"tests: no {what}: {why}", flush=True)


def _hosts() -> None:
    refusal.check()
    base.base(lambda: print("tests: making the root file system of booted hosts, 72 s", flush=True))


if __name__ == "__main__":
    main("--all" in sys.argv[1:])
