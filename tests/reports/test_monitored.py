from __future__ import annotations

from pathlib import Path

import pytest

from gpuform.cli.local_tables import monitored
from lab.plane import Member, Status

pytestmark = pytest.mark.unit

PROMETHEUS = Member("prometheus", 7, True, 2**26, 29237)
AT = (
    "Prometheus (real; the GPUs that it measures are simulated) answers: http://127.0.0.1:29237/api/v1/alerts"
)


def status(*members: Member, said: tuple[str, ...] = ()) -> Status:
    return Status(members, Path("kubeconfig"), None, True, "v1.34.4", said)


def test_nothing_where_nobody_has_declared_it() -> None:
    assert monitored(status(Member("etcd", 1, True, 1, 2))) == []
    assert monitored(status()) == []


def test_where_it_answers_and_what_is_wrong() -> None:
    assert monitored(status(PROMETHEUS)) == [AT]
    assert monitored(status(PROMETHEUS, said=("rules a/b: no; the old ones stay",))) == [
        AT,
        "monitoring: rules a/b: no; the old ones stay",
    ]
