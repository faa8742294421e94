from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
ROWS = yaml.safe_load((HERE / "bad_notebooks.yaml").read_text())
GOOD: dict[str, Any] = yaml.safe_load((HERE / "good_notebooks.yaml").read_text())


def test_the_good_one_is_good() -> None:
    env = parse(GOOD)
    assert env.warnings == ()
    assert parse(env.resolved()) == env


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['at']} {row['put']}" for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(changed(GOOD, row)) == row["said"]


@pytest.mark.parametrize(("file", "more"), [("good_aws", ", as gp2"), ("good_openstack", "")])
def test_a_cluster_without_a_default_class_needs_a_named_one(file: str, more: str) -> None:
    declared = yaml.safe_load((HERE / f"{file}.yaml").read_text())
    work = {"name": "a", "kind": "notebook", "editor": "vscode", "user": "a", "home": {"size": "1Gi"}}
    fact = "missing, and the cluster has no default class: the volume would never be created"
    said = f"workloads[0].home.storage_class: {fact}; name one that it has{more}"
    assert message({**declared, "workloads": [work]}) == said
    work["home"] = {"size": "1Gi", "storage_class": "gp2"}
    assert parse({**declared, "workloads": [work]})
