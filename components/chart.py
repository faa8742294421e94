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
    # The path of our own chart is relative, so that the state does not contain the checkout's location.
    return Release(
        name,
        chart=planned.chart if planned.version else os.path.relpath(ROOT / planned.chart),
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
