"""Every field of the environment changes a rendered object besides the environment itself, or the program.

Fields that only AWS has go to its API rather than into a manifest.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.hosts.cluster import HostsCluster
from infra.plan.inventory import key_paths
from infra.plan.render import render
from tests.fakes.recorder import record
from tests.plan.fields import ENVIRONMENTS, Row, every_model, put, rows

pytestmark = pytest.mark.unit

ROWS = {part: list(rows(part)) for part in ("rendered", "refused", "program")}
EXEMPT = {
    # Reaching the cluster and the cloud is for the provider: no manifest may depend on it.
    *(("ExistingCluster", "kubeconfig"), ("ExistingCluster", "context"), ("OpenstackCluster", "cloud")),
    # How the provider's workflow proceeds: tests/components/test_workloads.py.
    *(("BlueGreen", key) for key in ("step", "switch_at", "deadline_seconds")),
    # The guards, which only the program has: tests/components/test_loss_guards.py, test_magnum.py.
    ("Environment", "acknowledge_loss"),
    *((name, "allow_replace") for name in ("OpenstackCluster", "OpenstackPool")),
    # Where the engine keeps its state: tests/engine/test_state.py.
    *(("Environment", "state"), ("State", "backend"), ("State", "secrets_provider")),
    # A fact about the machine of an update: tests/clouds/aws/test_preflight_network.py.
    ("Endpoint", "reached_by"),
    # Each toolkit version takes exactly one value: tests/config/test_bad_clusters.py tests both.
    ("HostsCluster", "acknowledge"),
}
BASE = {
    **dict.fromkeys(("DeploymentWorkload", "JobWorkload", "NotebookWorkload"), "PodWorkload"),
    "InferenceWorkload": "DeploymentWorkload",
}
"""Types that share fields with another, which has the rows."""


def test_the_tables_know_every_field_but_those_that_choose_a_type() -> None:
    of = {model.__name__: set(model.model_fields) for model in every_model()}
    fields = {(name, key) for name in of for key in of[name] - of.get(BASE.get(name, ""), set()) - {"kind"}}
    assert fields == {row[:2] for part in ROWS.values() for row in part} | EXEMPT


def rendered(mapping: dict[str, Any]) -> dict[str, str]:
    return rendered_text(json.dumps(mapping))


@cache
def rendered_text(text: str) -> dict[str, str]:
    env = parse(json.loads(text))
    paths = dict(key_paths(env)).values() if isinstance(env.cluster, HostsCluster) else ()
    files = render(env, {path: f"the key in {path}" for path in paths})
    del files["environment.yaml"]
    return files


@cache
def program(text: str) -> frozenset[str]:
    return frozenset(
        json.dumps([resource.type, resource.name, resource.inputs], sort_keys=True, default=str)
        for resource in record(json.loads(text)).resources
    )


def name_of(row: Row) -> str:
    return ".".join(row[:2])


@pytest.mark.parametrize("row", ROWS["rendered"], ids=name_of)
def test_the_field_changes_what_is_rendered(row: Row) -> None:
    _, _, start, path, value = row
    assert rendered(start) != rendered(put(start, path, value))


@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS["program"], ids=name_of)
def test_the_field_changes_the_program(row: Row) -> None:
    _, _, start, path, value = row
    assert program(json.dumps(start)) != program(json.dumps(put(start, path, value)))


@pytest.mark.parametrize("row", ROWS["refused"], ids=name_of)
def test_the_field_decides_what_is_accepted(row: Row) -> None:
    _, _, start, path, value = row
    assert rendered(start)
    with pytest.raises(InputError):
        parse(put(start, path, value))


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("existing", "cluster", {"kind": "existing", "kubeconfig": "/other", "context": "c"}),
        ("magnum named", "cluster/cloud", "other"),
        ("existing", "state", {"backend": "s3://bucket/a", "secrets_provider": "awskms://alias/gpuform"}),
    ],
    ids=["the connection", "which cloud it is", "where the state is kept"],
)
def test_no_manifest_depends_on(name: str, path: str, value: Any) -> None:
    start = ENVIRONMENTS[name]
    assert rendered(start) == rendered(put(start, path, value))
