from __future__ import annotations

import pytest

from infra.config import parse
from tests.config.edits import message
from tests.config.tables import GOOD, T4, on

pytestmark = pytest.mark.unit


def test_without_the_block_its_namespace_is_free() -> None:
    work = {"name": "w", "namespace": "monitoring", "kind": "pod", "pool": "t4", "image": "a:1"}
    assert parse({**on("embedded", T4), "workloads": [work]}).monitoring is None


@pytest.mark.parametrize("retention", ["2h", "24h", "1d"])
def test_a_day_is_kept_without_storage(retention: str) -> None:
    found = parse({**on("existing", T4), "monitoring": {"retention": retention}}).monitoring
    assert found
    assert found.retention == retention


@pytest.mark.parametrize(("kind", "more"), [("aws", ", as gp2"), ("openstack", "")])
def test_a_cluster_without_a_default_class_needs_a_named_one(kind: str, more: str) -> None:
    work = {"name": "a", "kind": "notebook", "editor": "vscode", "user": "a", "home": {"size": "1Gi"}}
    fact = "missing, and the cluster has no default class: the volume would never be created"
    said = f"workloads[0].home.storage_class: {fact}; name one that it has{more}"
    assert message({**GOOD[kind], "workloads": [work]}) == said
    work["home"] = {"size": "1Gi", "storage_class": "gp2"}
    assert parse({**GOOD[kind], "workloads": [work]})
