"""Every field of the environment changes a rendered object besides the environment itself.

Fields that only AWS has go to its API rather than into a manifest: tests/components has those rows.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.hosts.cluster import HostsCluster
from infra.plan.inventory import key_paths
from infra.plan.render import render
from tests.components import aws_fields
from tests.config.test_schema import every_model
from tests.plan.fields import ENVIRONMENTS, put, rows

pytestmark = pytest.mark.unit

ROWS, REFUSED = rows("rows"), rows("refused")
# Exempt: fields that choose a type (each type has its own rows), the two for reaching the cluster, which go
# to the Kubernetes provider, and where the engine keeps its state, which tests/engine/test_state.py tests.
# No manifest may depend on them.
EXEMPT = {("ExistingCluster", "kubeconfig"), ("ExistingCluster", "context")}
# How the provider's workflow proceeds: tests/components/test_workloads.py tests these.
EXEMPT |= {("BlueGreen", key) for key in ("step", "switch_at", "deadline_seconds")}
# Read by the guards, which are resources of the program only: tests/components/test_loss_guards.py.
EXEMPT |= {("Environment", "acknowledge_loss")}
EXEMPT |= {("Environment", "state"), ("State", "backend"), ("State", "secrets_provider")}
# Declares a fact about the machine of an update: tests/clouds/aws/test_preflight_network.py.
EXEMPT |= {("Endpoint", "reached_by")}
CHOOSING = {"kind"}
# How a cloud is reached goes to the provider; what may be replaced goes to the guards:
# tests/plan/test_magnum.py.
EXEMPT |= {("OpenstackCluster", "cloud")}
EXEMPT |= {(name, "allow_replace") for name in ("OpenstackCluster", "OpenstackPool")}
# Each toolkit version takes exactly one value: tests/config/test_bad_hosts.py tests both.
EXEMPT |= {("HostsCluster", "acknowledge")}


def test_the_table_knows_every_field() -> None:
    fields = set()
    for model in every_model():
        name = model.__name__
        shared = set(models_named(BASE[name]).model_fields) if name in BASE else set()
        fields |= {(name, key) for key in model.model_fields if key not in CHOOSING | shared}
    assert fields == set(ROWS) | EXEMPT | aws_fields.FIELDS | set(REFUSED)


BASE = {
    **dict.fromkeys(("DeploymentWorkload", "JobWorkload", "NotebookWorkload"), "PodWorkload"),
    "InferenceWorkload": "DeploymentWorkload",
}
"""Types that share fields with another, which has the rows."""


def models_named(name: str) -> type[BaseModel]:
    return next(model for model in every_model() if model.__name__ == name)


def rendered(mapping: dict[str, Any]) -> dict[str, str]:
    env = parse(mapping)
    paths = dict(key_paths(env)).values() if isinstance(env.cluster, HostsCluster) else ()
    files = render(env, {path: f"the key in {path}" for path in paths})
    del files["environment.yaml"]
    return files


@pytest.mark.parametrize("row", ROWS, ids=[".".join(row) for row in ROWS])
def test_the_field_changes_what_is_rendered(row: tuple[str, str]) -> None:
    start, path, value = ROWS[row]
    assert rendered(start) != rendered(put(start, path, value))


@pytest.mark.parametrize("row", REFUSED, ids=[".".join(row) for row in REFUSED])
def test_the_field_decides_what_is_accepted(row: tuple[str, str]) -> None:
    start, path, value = REFUSED[row]
    assert rendered(start)
    with pytest.raises(InputError):
        parse(put(start, path, value))


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("existing", "cluster", {"kind": "existing", "kubeconfig": "/other", "context": "c"}),
        ("magnum named", "cluster/cloud", "other"),
        (
            "existing",
            "state",
            {"backend": "s3://bucket/prefix", "secrets_provider": "awskms://alias/gpuform"},
        ),
    ],
    ids=["the connection", "which cloud it is", "where the state is kept"],
)
def test_no_manifest_depends_on(name: str, path: str, value: Any) -> None:
    start = ENVIRONMENTS[name]
    assert rendered(start) == rendered(put(start, path, value))
