from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
ROWS = yaml.safe_load((HERE / "bad_scheduling.yaml").read_text())
SLICES = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
POOLS = [
    {"name": "t4", "machine": "g2.5xlarge", "sharing": {"kind": "time_slicing", "replicas": 4}},
    {"name": "mig", "machine": "g4.p1.40g", "sharing": SLICES},
    {"name": "whole", "machine": "g4.p4.40g"},
    {"name": "more", "machine": "g1.4xlarge"},
    {"name": "cpu", "machine": "m6i.xlarge"},
]
WORK = {"name": "work", "kind": "deployment", "replicas": 3, "pool": "t4", "image": "a:1"}
GOOD: dict[str, dict[str, Any]] = {
    "embedded": {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "pools": [{**pool, "nodes": 1} for pool in POOLS],
        "workloads": [WORK],
    },
    "existing": {
        "name": "test",
        "cluster": {"kind": "existing", "kubeconfig": "/k"},
        "pools": [{**pool, "selector": {"a": str(pool["name"])}} for pool in POOLS],
    },
    "aws": yaml.safe_load((HERE / "good_aws.yaml").read_text()),
}
GOOD["aws"]["pools"][0] |= {"elastic": {"max": {"cpu": 16}}}
GOOD["aws"]["pools"][2] = {"name": "cpu", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": 16}}}


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_ones_are_good(kind: str) -> None:
    assert parse(GOOD[kind]).cluster.kind == kind


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['of']} {row['at']} {row['put']}" for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(changed({**GOOD[row["of"]], **row.get("and", {})}, row)) == row["said"]
