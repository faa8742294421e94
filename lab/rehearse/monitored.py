"""Asks the rehearsal's Prometheus whether it has scraped the GPU nodes."""

from __future__ import annotations

import time
from collections.abc import Collection

from gpuform.checkout.errors import Failure
from gpuform.usage.prometheus import NOT_STARTED, Direct, Prometheus
from gpuform.usage.rehearsal import Scraped
from infra.plan.scraping import JOB
from lab.plane import ControlPlane
from lab.plane.processes import PROMETHEUS

INTERVAL = "5s"
"""Replaces ``monitoring.interval`` in a rehearsal, so that the newest node is scraped in time."""
PATIENCE_S = 20.0
"""Discovery takes a few seconds, a scrape six at most."""
_EVERY_S = 0.5
_QUERY = f'up{{job="{JOB}"}} == 1'


def scraped(plane: ControlPlane, nodes: Collection[str]) -> Scraped:
    """Wait until every node was scraped, at most ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        status = plane.status()
        port = next((one.port for one in status.members if one.name == PROMETHEUS), None)
        there = _nodes(port) if port else None
        missing = tuple(sorted(set(nodes) - (there or set())))
        if (there is not None and not missing) or time.monotonic() > deadline:
            trouble = status.unmonitored if there is not None else (*status.unmonitored, "it does not answer")
            return Scraped(len(nodes), missing, "; ".join(trouble))
        time.sleep(_EVERY_S)


def _nodes(port: int) -> set[str] | None:
    """Nodes with a successful last scrape of their exporter; None if Prometheus does not answer."""
    transport = Direct(f"http://127.0.0.1:{port}")
    try:
        return {one.labels.get("node", "") for one in Prometheus(transport, NOT_STARTED).query(_QUERY)}
    except Failure:
        return None
    finally:
        transport.close()
