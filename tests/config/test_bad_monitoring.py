from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from tests.config.edits import message

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
ROWS = yaml.safe_load((HERE / "bad_monitoring.yaml").read_text())
POOL = {"name": "t4", "machine": "g2.5xlarge"}
GOOD: dict[str, dict[str, Any]] = {
    "embedded": {"name": "test", "cluster": {"kind": "embedded"}, "pools": [{**POOL, "nodes": 1}]},
    "existing": {
        "name": "test",
        "cluster": {"kind": "existing", "kubeconfig": "/k"},
        "pools": [{**POOL, "selector": {"a": "b"}}],
    },
    "aws": yaml.safe_load((HERE / "good_aws.yaml").read_text()),
    "hosts": yaml.safe_load((HERE / "good_hosts.yaml").read_text()),
}


@pytest.mark.parametrize("kind", GOOD)
def test_the_smallest_block_is_good(kind: str) -> None:
    assert parse({**GOOD[kind], "monitoring": {}}).monitoring


def test_without_the_block_its_namespace_is_free() -> None:
    work = {"name": "w", "namespace": "monitoring", "kind": "pod", "pool": "t4", "image": "a:1"}
    assert parse({**GOOD["embedded"], "workloads": [work]}).monitoring is None


@pytest.mark.parametrize("retention", ["2h", "24h", "1d"])
def test_a_day_is_kept_without_storage(retention: str) -> None:
    found = parse({**GOOD["existing"], "monitoring": {"retention": retention}}).monitoring
    assert found
    assert found.retention == retention


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['of']} {row['put']}" for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message({**GOOD[row["of"]], **row.get("and", {}), "monitoring": row["put"]}) == row["said"]
