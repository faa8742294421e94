"""Output and exit code of ``gpuform local up`` if a pool does not offer what was planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpuform.cli import local
from gpuform.cli.main import app
from gpuform.usage.status import ClusterStatus, summarise
from infra.config import load
from tests.reports.test_status import node

pytestmark = pytest.mark.unit

ENV = load(Path(__file__).parents[2] / "Pulumi.local.yaml")
BROKEN = {"simulator.gpuform.io/unhealthy": "1"}


def current(notes: dict[str, str]) -> ClusterStatus:
    """Everything as planned, except three GPUs of four on ``v100-0``, with these annotations."""
    offers: dict[str, list[dict[str, str]]] = {
        "t4-shared": [{"gpu.shared": "4"}] * 2,
        "a100-mig": [{"mig-3g.20gb": "1", "mig-2g.10gb": "2"}],
        "a100-7": [{"mig-1g.5gb": "7"}],
        "a100-whole": [{"gpu": "4"}],
        "v100": [{"gpu": "3"}],
        "g4dn-shared": [{"gpu": "3"}],
        "cpu": [{}, {}],
    }
    nodes = [
        node(f"{pool}-{number}", pool, **each)
        for pool, every in offers.items()
        for number, each in enumerate(every)
    ]
    for one in nodes:
        one["metadata"]["annotations"] = notes if one["metadata"]["name"] == "v100-0" else {}
    return summarise(ENV, nodes, [])


class Engine:
    ups = refreshed = 0

    def __init__(self, *args: Any) -> None:
        type(self).ups = type(self).refreshed = 0

    def up(self, stack: str, settle: Any = None) -> Any:
        type(self).ups += 1
        return type("Result", (), {"summary": "no changes", "changed": False})

    def refresh(self, stack: str, on_event: Any) -> None:
        type(self).refreshed += 1


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command on such a cluster, with all other parts stubbed."""
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    plane = type("Plane", (), {"start_for": lambda *a: None})
    plane.status = lambda self: type("Status", (), {"members": (), "unmonitored": ()})  # type: ignore[attr-defined]
    monkeypatch.setattr(local, "_control_plane", plane)
    monkeypatch.setattr(local, "_report", lambda *args: tmp_path / "index.html")
    for name in ("SETTLE_S", "UNCHANGED_S"):
        monkeypatch.setattr(local, name, 0.0)
    monkeypatch.setattr("lab.toolchain.Toolchain.ensure", lambda *args: None)
    monkeypatch.setattr("gpuform.engine.Engine", Engine)

    def run(found: ClusterStatus) -> Result:
        monkeypatch.setattr("gpuform.usage.status.read", lambda *args: found)
        return CliRunner().invoke(app, ["local", "up"])

    return run


def test_a_gpu_that_was_broken_is_said_and_nobody_waits_for_it(up: Any) -> None:
    result = up(current(BROKEN))
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "node v100-0 does not offer what was planned, because a fault was injected: GPU 1 is unhealthy: "
        "`gpuform simulate health v100-0 --gpu 1 --ok` clears it\n"
    )
    assert (Engine.ups, Engine.refreshed) == (1, 0)


def test_what_is_missing_without_a_reason_is_a_failure(up: Any) -> None:
    result = up(current({}))
    assert result.exit_code == 1
    assert result.stderr.startswith("failed: pools v100: do not offer what was planned after 0 s; ")
    assert (Engine.ups, Engine.refreshed) == (2, 1)
