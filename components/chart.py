"""One planned chart as one Helm release."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from infra.plan.charts import ChartRelease

ROOT = Path(__file__).resolve().parent.parent


def helm_release(
    name: str,
    planned: ChartRelease,
    timeout: int,
    opts: pulumi.ResourceOptions,
    atomic: bool = True,
    **options: Any,
) -> Release:
    """Register the release as the resource ``name``; if ``atomic``, an upgrade that fails is rolled back.

    ``timeout`` is in seconds; ``options`` are further arguments of the release.
    """
    return Release(
        name,
        chart=planned.chart if planned.version else _own_chart(ROOT / planned.chart),
        version=planned.version,
        repository_opts=RepositoryOptsArgs(repo=planned.repository) if planned.repository else None,
        namespace=planned.namespace,
        name=planned.name,
        values=planned.values,
        atomic=atomic,
        timeout=timeout,
        opts=opts,
        **options,
    )


def _own_chart(chart: Path) -> str:
    """Relative in a checkout, so that the base of a preview, in another folder, has the same."""
    return os.path.relpath(chart) if Path.cwd().is_relative_to(ROOT) else str(chart)
