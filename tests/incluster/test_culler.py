"""The programs' client of the API server, and what the culler stops; on a cluster: test_notebooks.py."""

from __future__ import annotations

import io
import urllib.error
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from infra.incluster.cluster import Cluster
from infra.incluster.culler import has_ended, stop_ended
from tests.fakes.refusing_server import serve_refusals
from tests.openstack.authority import write_certificates

pytestmark = pytest.mark.unit

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("authority", "answer"), [("served", "HTTP Error 401"), ("other", "CERTIFICATE_VERIFY_FAILED")]
)
def test_certificates_without_key_identifiers_are_verified(
    tmp_path: Path, authority: str, answer: str
) -> None:
    for name in ("served", "other"):
        write_certificates(tmp_path / name, name)
    for name in ("namespace", "token"):
        (tmp_path / authority / name).write_text("gpu-operator")
    with serve_refusals(tmp_path / "served") as server:
        cluster = Cluster(tmp_path / authority, server)
        with pytest.raises(urllib.error.URLError, match=answer):
            cluster.request("GET", "/version")


def pod(name: str = "ada", meta: Json | None = None, **states: Json) -> Json:
    status = {"name": name, "state": {"running": {}}, "lastState": {}, **states}
    return {"metadata": meta or {}, "status": {"containerStatuses": [status]}}


OWNER = {"ownerReferences": [{"kind": "StatefulSet", "name": "ada", "uid": "1"}]}
COMPLETED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
CRASHED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


@pytest.mark.parametrize(
    ("pod_", "expected"),
    [
        (pod(), False),
        (pod(lastState=COMPLETED), True),
        (pod(state=COMPLETED), True),
        (pod(lastState=CRASHED), False),
        (pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=COMPLETED), True),
        (pod("istio-proxy", lastState=COMPLETED), False),
        (pod(meta={"deletionTimestamp": "2026-11-27T00:00:00Z"}, lastState=COMPLETED), False),
        ({"metadata": {}, "status": {}}, False),
        ({"metadata": {}}, False),
    ],
)
def test_only_an_editor_that_has_ended_by_itself_counts(pod_: Json, expected: bool) -> None:
    assert has_ended(pod_, "ada") is expected


class FakeServer(Cluster):
    def __init__(self, pods: dict[str, Json | int]) -> None:
        self.pods, self.calls = pods, list[tuple[str, str]]()

    def request(self, method: str, path: str, *arguments: Any) -> Json:
        answer = self.pods.get(path.rpartition("/")[2], 404) if method == "GET" else {}
        if isinstance(answer, int):
            raise urllib.error.HTTPError(path, answer, "", Message(), io.BytesIO())
        if method != "GET":
            self.calls.append((path, str(arguments[1].get("spec") or arguments[1]["involvedObject"]["name"])))
        return answer


def test_culler_stops_ended_editors_beside_unreadable_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = FakeServer({"bad-0": 403, "ada-0": pod(meta=OWNER, lastState=COMPLETED), "bob-0": pod("bob")})
    stop_ended(server, [["lab", name] for name in ("bad", "gone", "ada", "bob")])
    assert server.calls == [
        ("/apis/apps/v1/namespaces/lab/statefulsets/ada/scale", "{'replicas': 0}"),
        ("/api/v1/namespaces/lab/events", "ada"),
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("lab/bad: HTTPError")
    assert lines[1:] == ["lab/ada: stopped"]
