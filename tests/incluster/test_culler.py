"""The culler's decisions; tests/lab/sidecars/controllers/test_notebooks.py runs it on a cluster."""

from __future__ import annotations

import io
import urllib.error
from email.message import Message
from typing import Any

import pytest

from infra.incluster.cluster import Cluster
from infra.incluster.culler import ended, look

pytestmark = pytest.mark.unit

Json = dict[str, Any]


def pod(name: str = "ada", meta: Json | None = None, **states: Json) -> Json:
    status = {"name": name, "state": {"running": {}}, "lastState": {}, **states}
    return {"metadata": meta or {}, "status": {"containerStatuses": [status]}}


OWNED = {"ownerReferences": [{"kind": "StatefulSet", "name": "ada", "uid": "1"}]}
OVER = {"terminated": {"exitCode": 0, "reason": "Completed"}}
CRASHED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(), False),
        (pod(lastState=OVER), True),
        (pod(state=OVER), True),
        (pod(lastState=CRASHED), False),
        (pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=OVER), True),
        (pod("istio-proxy", lastState=OVER), False),
        (pod(meta={"deletionTimestamp": "2026-11-27T00:00:00Z"}, lastState=OVER), False),
        ({"metadata": {}, "status": {}}, False),
        ({"metadata": {}}, False),
    ],
)
def test_only_an_editor_that_has_ended_by_itself_counts(found: Json, expected: bool) -> None:
    assert ended(found, "ada") is expected


class Played(Cluster):
    def __init__(self, pods: dict[str, Json | int]) -> None:
        self.pods, self.calls = pods, list[tuple[str, str]]()

    def call(self, method: str, path: str, *more: Any) -> Json:
        found = self.pods.get(path.rpartition("/")[2], 404) if method == "GET" else {}
        if isinstance(found, int):
            raise urllib.error.HTTPError(path, found, "", Message(), io.BytesIO())
        if method != "GET":
            self.calls.append((path, str(more[1].get("spec") or more[1]["involvedObject"]["name"])))
        return found


def test_one_that_cannot_be_read_or_is_stopped_does_not_keep_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Played({"bad-0": 403, "ada-0": pod(meta=OWNED, lastState=OVER), "bob-0": pod("bob")})
    look(server, [["lab", name] for name in ("bad", "gone", "ada", "bob")])
    assert server.calls == [
        ("/apis/apps/v1/namespaces/lab/statefulsets/ada/scale", "{'replicas': 0}"),
        ("/api/v1/namespaces/lab/events", "ada"),
    ]
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("lab/bad: HTTPError")
    assert said[1:] == ["lab/ada: stopped"]
