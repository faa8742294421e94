"""What the health loop counts of rebuilds; that it does them is seen on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.incluster import told
from infra.incluster.loop import Loop
from infra.incluster.rebuilding import Rebuilder
from tests.incluster.played_rebuild import CLOSED, NOTE, Json, Magnum, Pods

pytestmark = pytest.mark.unit


class _Server(Pods):
    """Of the cluster what a failed rebuild needs: a ticket is written, and an event."""

    namespace = "gpuform-health"

    def config_map(self, name: str) -> None:
        pass

    def write(self, config_map: Json) -> Json:
        return config_map

    def event(self, event: Json) -> None:
        pass


def test_a_rebuild_that_fails_is_counted_for_the_alert_on_failed_actions(tmp_path: Path) -> None:
    """The node's closing was done and counted; without this nobody is told but by a ticket."""
    declared = {"prometheus": "", "pools": {}, "mode": "replace", "budget": 1.0, "max": None}
    server, metrics = _Server(), told.Metrics()
    rebuilder = Rebuilder(server, Magnum(tmp_path / "no-secret", "research"))  # type: ignore[arg-type]
    loop = Loop(server, {**declared, "window_s": 3600, "settle_s": 600}, metrics, 1.0, rebuilder)  # type: ignore[arg-type]
    assert loop._moved(NOTE, CLOSED, 1000.0).failed
    counted = 'gpuform_health_actions_total{node="n",class="replace",action="replace",result="failed"} 1'
    assert counted in metrics.text()
