"""Which resource a Helm release belongs to, as its label or its content says."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from gpuform.plugins.kubernetes.release_history import Revision, owner
from gpuform.recover.releases import Found

pytestmark = pytest.mark.unit

URN = "urn:pulumi:s::p::kubernetes:helm.sh/v3:Release::it"
INPUTS = {
    "chart": "operator",
    "version": "v1.2.0",
    "repositoryOpts": {"repo": "https://charts.example.org"},
    "values": {"a": {"b": 1}},
}


@pytest.mark.parametrize(
    ("ours", "number", "label", "chart", "values", "inputs"),
    [
        (True, 1, "", ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
        (False, 2, "", ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
        (False, 1, "", ("operator", "1.2.1"), {"a": {"b": 1}}, {}),
        (False, 1, "", ("other", "1.2.0"), {"a": {"b": 1}}, {}),
        (True, 1, "", ("other", "1.2.0"), {"a": {"b": 1}}, {"chart": "../charts/x", "repositoryOpts": None}),
        (False, 1, "", ("operator", "1.2.0"), {"a": {"b": 2}}, {}),
        (True, 1, "", ("operator", "1.2.0"), None, {"values": {}}),
        (True, 3, owner(URN), ("other", "1.2.1"), None, {}),
        (False, 1, owner(URN + "2"), ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
    ],
)
def test_a_release_is_ours_by_its_label_or_by_its_first_content(
    ours: bool, number: int, label: str, chart: tuple[str, str], values: Any, inputs: dict[str, Any]
) -> None:
    content = {"chart": {"metadata": {"name": chart[0], "version": chart[1]}}, "config": values}
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    stored = base64.b64encode(packed).decode()
    found = Found("n/it", (Revision(number, "deployed", label),), None, stored)
    assert found.made_by(URN, INPUTS | inputs) is ours
    assert not Found("n/it", (), None).made_by(URN, INPUTS | inputs)
