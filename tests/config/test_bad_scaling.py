from __future__ import annotations

import pytest

from infra.config import parse
from tests.config.edits import changed
from tests.config.tables import GOOD, SERVED

pytestmark = pytest.mark.unit

MODEL = "workloads/1/model"


def test_neither_good_one_gets_a_warning() -> None:
    assert [parse(GOOD["scaling"]).warnings, parse(SERVED).warnings] == [(), ()]


def test_no_pods_are_allowed_if_the_query_counts_requests_without_them() -> None:
    query = "sum(rate(nginx_ingress_controller_requests[1m])) or vector(0)"
    edits = {"at": "workloads/1/scale/query", "put": query}, {"at": "workloads/1/scale/min", "put": 0}
    assert parse(changed(GOOD["scaling"], *edits))


PATHS = ("gs://models/a", "hf://org/model:main", "s3://a/b/", "pvc://claim", "pvc://claim/a/b")


@pytest.mark.parametrize("uri", [*PATHS, "https://models.example/a/model.tar.gz?versionId=1"])
def test_kserve_fetches_it(uri: str) -> None:
    words = {"at": "workloads/1/command", "put": ["tritonserver", "--model-repository", "/mnt/models/a"]}
    assert parse(changed(SERVED, {"at": f"{MODEL}/uri", "put": uri}, words))
