"""Bad input about health: errors and messages, above all for two remediators of the same nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from tests.components.aws_stacks import small
from tests.config.edits import message

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
ROWS = yaml.safe_load((HERE / "bad_health.yaml").read_text())
MONITORED: dict[str, Any] = {"monitoring": {}}
T4 = {"name": "t4", "machine": "g2.5xlarge"}
GOOD: dict[str, dict[str, Any]] = {
    "embedded": {"name": "test", "cluster": {"kind": "embedded"}, "pools": [{**T4, "nodes": 1}], **MONITORED},
    "existing": {
        "name": "test",
        "cluster": {"kind": "existing", "kubeconfig": "/k"},
        "pools": [{**T4, "selector": {"a": "b"}}],
        **MONITORED,
    },
    "aws": {
        **small(
            {"name": "burst", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 40}}},
            {"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1},
        ),
        **MONITORED,
    },
}


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_ones_are_good(kind: str) -> None:
    health = {"mode": "replace", "remediator": "gpuform", "budget": "10%", "max": 2, "window": "2h"}
    env = parse({**GOOD[kind], "health": health})
    assert env.health
    assert (env.health.share, env.health.acts) == (0.1, True)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['of']} {row['put']}" for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    mapping = {**GOOD[row["of"]], **row.get("and", {}), row.get("at", "health"): row["put"]}
    assert message({key: value for key, value in mapping.items() if value is not None}) == row["said"]
