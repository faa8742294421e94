"""Which resource a Helm release belongs to, and the plan for a pending one."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuform.kubernetes.kubeconfig import resolve
from gpuform.stack.recover.cluster import _with_logins
from gpuform.stack.recover.releases import Found, settled

pytestmark = pytest.mark.unit

INPUTS = {
    "chart": "operator",
    "version": "v1.2.0",
    "repositoryOpts": {"repo": "https://charts.example.org"},
    "values": {"a": {"b": 1}},
}


@pytest.mark.parametrize(
    ("ours", "number", "chart", "values", "inputs"),
    [
        (True, 1, ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
        (False, 2, ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
        (False, 1, ("operator", "1.2.1"), {"a": {"b": 1}}, {}),
        (False, 1, ("other", "1.2.0"), {"a": {"b": 1}}, {}),
        (True, 1, ("other", "1.2.0"), {"a": {"b": 1}}, {"chart": "../charts/x", "repositoryOpts": None}),
        (False, 1, ("operator", "1.2.0"), {"a": {"b": 2}}, {}),
        (True, 1, ("operator", "1.2.0"), None, {"values": {}}),
    ],
)
def test_a_release_is_ours_by_its_first_content(
    ours: bool, number: int, chart: tuple[str, str], values: Any, inputs: dict[str, Any]
) -> None:
    content = {"chart": {"metadata": {"name": chart[0], "version": chart[1]}}, "config": values}
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    stored = base64.b64encode(packed).decode()
    found = Found("n/it", number, "deployed", None, stored)
    assert found.made_by(INPUTS | inputs) is ours
    assert not Found("n/it").made_by(INPUTS | inputs)


@pytest.mark.parametrize(
    ("status", "good", "ours", "age", "does"),
    [
        ("deployed", 2, True, 600, None),
        ("failed", 1, True, 600, None),
        ("pending-install", 0, True, 600, "mark failed"),
        ("pending-upgrade", 1, True, 179, "leave"),
        ("pending-upgrade", 1, True, 181, "roll back"),
        ("pending-upgrade", 0, True, 181, "mark failed"),
        ("pending-rollback", 1, False, 600, "leave"),
    ],
)
def test_what_becomes_of_a_release(status: str, good: int, ours: bool, age: float, does: str | None) -> None:
    now = datetime.now(UTC)
    found = Found("n/it", 2, status, now - timedelta(seconds=age), good=good)
    release = settled("urn", found, ours, now)
    assert (release.does if release else None) == does


def test_helm_logs_in_as_the_client_does(tmp_path: Path) -> None:
    """The engine's environment has the login command; the PATH of this process may not."""
    program = tmp_path / "aws"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}
    given = {
        "clusters": [{"name": "c", "cluster": {"server": "https://c"}}, {"name": "d", "cluster": {}}],
        "users": [{"name": "u", "user": {"exec": login}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "one",
    }
    env = {"PATH": str(tmp_path), "GPUFORM_OFFLINE": "1"}
    config = _with_logins(resolve({"kubeconfig": json.dumps(given)}, {}), env).document
    assert [one["cluster"] for one in config["clusters"]] == [{"server": "https://c"}]
    (user,) = config["users"]
    assert user["user"]["exec"]["command"] == str(program)
    assert user["user"]["exec"]["env"] == [{"name": "GPUFORM_OFFLINE", "value": "1"}]
