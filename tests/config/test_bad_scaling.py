from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
ROWS = yaml.safe_load((HERE / "bad_scaling.yaml").read_text())
GOOD: dict[str, Any] = yaml.safe_load((HERE / "good_scaling.yaml").read_text())
MODEL = "workloads/1/model"
SERVED = changed(
    GOOD, {"at": MODEL, "put": {"uri": "s3://models/resnet", "format": "onnx", "service_account": "models"}}
)


def test_the_good_one_is_good() -> None:
    for env in (parse(GOOD), parse(SERVED)):
        assert env.warnings == ()
        assert parse(env.resolved()) == env


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['at']} {row.get('put')}" for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    good = SERVED if row.get("of") == "served" else GOOD
    assert message(changed(good, row, *row.get("and", ()))) == row["said"]


def test_no_pods_are_allowed_if_the_query_counts_requests_without_them() -> None:
    query = "sum(rate(nginx_ingress_controller_requests[1m])) or vector(0)"
    edits = {"at": "workloads/1/scale/query", "put": query}, {"at": "workloads/1/scale/min", "put": 0}
    assert parse(changed(GOOD, *edits))


PATHS = ("gs://models/a", "hf://org/model:main", "s3://a/b/", "pvc://claim", "pvc://claim/a/b")


@pytest.mark.parametrize("uri", [*PATHS, "https://models.example/a/model.tar.gz?versionId=1"])
def test_kserve_fetches_it(uri: str) -> None:
    words = {"at": "workloads/1/command", "put": ["tritonserver", "--model-repository", "/mnt/models/a"]}
    assert parse(changed(SERVED, {"at": f"{MODEL}/uri", "put": uri}, words))
