"""``gpuform up`` of an embedded stack: it waits for what was planned, and says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from gpuform.cli import up as up_command
from gpuform.engine import Result as Outcome
from gpuform.usage.status import ClusterStatus, summarise_status
from infra.config import load
from lab.plane import ControlPlane
from tests.cli.test_up import call
from tests.reports.test_status import node

pytestmark = pytest.mark.unit

ENV = load(Path(__file__).parents[2] / "Pulumi.local.yaml")
SICK = {"simulator.gpuform.io/unhealthy": "1"}


def status_with(notes: dict[str, str]) -> ClusterStatus:
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
    return summarise_status(ENV, nodes, [])


class CountingEngine:
    ups = refreshed = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        type(self).ups = type(self).refreshed = 0

    def up(self, stack: str, **options: Any) -> Any:
        type(self).ups += 1
        return Outcome("up", stack, {"same": 3}, 1.0)

    def refresh(self, stack: str, on_event: Any) -> None:
        type(self).refreshed += 1

    def forget(self, stack: str) -> int:
        return 0

    def export(self, stack: str) -> Any:
        return {}


@pytest.fixture
def up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Engine the command on such a cluster, with all other parts stubbed."""
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(ControlPlane, "start_for", lambda *_, **__: None)
    monkeypatch.setattr(up_command, "_measure", lambda *_: None)
    monkeypatch.setattr(up_command, "_write_report", lambda *args: tmp_path / "index.html")
    for name in ("SETTLE_S", "UNCHANGED_S"):
        monkeypatch.setattr(up_command, name, 0.0)
    monkeypatch.setattr("lab.toolchain.Toolchain.ensure", lambda *_, **__: None)
    monkeypatch.setattr(up_command, "Engine", CountingEngine)

    def run(found: ClusterStatus, *words: str) -> Result:
        monkeypatch.setattr(up_command, "read_status", lambda *args: found)
        return call(*words)

    return run


@pytest.mark.parametrize("words", [("local", "up"), ("up", "local")])
def test_a_gpu_that_was_broken_is_said_and_nobody_waits_for_it(up: Any, words: tuple[str, ...]) -> None:
    result = up(status_with(SICK), *words)
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "node v100-0 does not offer what was planned, because a fault was injected: GPU 1 is unhealthy: "
        "`gpuform simulate health v100-0 --gpu 1 --ok` clears it\n"
    )
    assert (CountingEngine.ups, CountingEngine.refreshed) == (1, 0)


def test_what_is_missing_without_a_reason_is_a_failure(up: Any) -> None:
    result = up(status_with({}), "up", "local")
    assert result.exit_code == 1
    assert result.stderr.startswith("failed: pools v100: do not offer what was planned after 0 s; ")
    assert (CountingEngine.ups, CountingEngine.refreshed) == (2, 1)
