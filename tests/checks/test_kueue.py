"""What Kueue's own chart makes of the values, and the planned objects against its CRDs' schemas.

tests/checks/test_api_server.py sends both to a real API server, which also evaluates the CRDs' CEL rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from infra.model.monitoring import Monitoring
from infra.model.queues import KUEUE
from infra.plan import monitoring_values, queues
from lab.toolchain import Toolchain
from tests.checks import everything, kueue
from tests.checks.charts import of, rendered
from tests.checks.everything import Document

pytestmark = pytest.mark.tools

NAMED = [name for name, env in everything.environments().items() if env.queues]
ITS_OWN = ("clusterqueue", "cohort", "resourceflavor", "workload")
"""Kinds of Kueue, which only have objects of its users."""


@pytest.fixture(scope="module", params=NAMED)
def made(request: pytest.FixtureRequest, toolchain: Toolchain) -> tuple[str, list[Document]]:
    (values,) = [values for name, values in of("kueue") if name == request.param]
    return request.param, rendered(toolchain, "kueue", values, "kueue-system")


def webhooks(objects: list[Document]) -> Iterator[Document]:
    for one in objects:
        if one["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            yield from one["webhooks"]


def test_nothing_outside_of_teams_depends_on_kueue(made: tuple[str, list[Document]]) -> None:
    name, objects = made
    declared = everything.environments()[name].queues
    assert declared is not None
    spaces = sorted(space for team in declared.teams for space in team.namespaces)
    here = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": spaces}]}
    found = {one["name"]: one for one in webhooks(objects)}
    assert {"mjob.kb.io", "mpod.kb.io", "mdeployment.kb.io", "vjob.kb.io", "vpod.kb.io"} <= set(found)
    for webhook, one in found.items():
        if webhook.split(".")[0][1:] not in ITS_OWN:
            assert one["namespaceSelector"] == here, webhook


def test_the_chart_passes_the_configuration_on(made: tuple[str, list[Document]]) -> None:
    name, objects = made
    env = everything.environments()[name]
    assert env.queues is not None
    (config,) = [one for one in objects if one["kind"] == "ConfigMap"]
    found = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    assert found.pop("internalCertManagement")["enable"] is True
    assert found == queues.configuration(env, env.queues)


def test_the_image_is_the_published_one_and_the_only_one(made: tuple[str, list[Document]]) -> None:
    """The release of Kueue puts its registry and tag into the chart; the module has those of its builds."""
    deployments = [one for one in made[1] if one["kind"] == "Deployment"]
    (container,) = [one for each in deployments for one in each["spec"]["template"]["spec"]["containers"]]
    assert container["image"] == "registry.k8s.io/kueue/kueue:v0.19.2"
    replicas = 1 if everything.environments()[made[0]].cluster.kind == "embedded" else 2
    assert [one["spec"]["replicas"] for one in deployments] == [replicas]
    budgets = [one for one in made[1] if one["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == replicas - 1


def test_prometheus_finds_the_metrics_of_kueue(made: tuple[str, list[Document]]) -> None:
    values = monitoring_values.values(everything.environments()[made[0]], Monitoring())
    (monitor,) = [one for one in values["prometheus"]["additionalServiceMonitors"] if one["name"] == "kueue"]
    wanted = monitor["selector"]["matchLabels"].items()
    (service,) = [
        one for one in made[1] if one["kind"] == "Service" and wanted <= one["metadata"]["labels"].items()
    ]
    assert service["metadata"]["namespace"] == KUEUE
    assert [one["name"] for one in service["spec"]["ports"]] == [monitor["endpoints"][0]["port"]]


def plain(schema: Any) -> Any:
    """The schema for jsonschema: quantities may be numbers or texts, and no other field is allowed."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: plain(value) for key, value in schema.items()}
    if found.get("x-kubernetes-int-or-string") is True:
        found.pop("type", None)
    if isinstance(found.get("properties"), dict) and found.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def test_every_object_is_valid_under_kueues_crds(toolchain: Toolchain) -> None:
    schemas = kueue.schemas(toolchain)
    kinds = set()
    for name in NAMED:
        for one in everything.objects(name):
            if one["apiVersion"].startswith("kueue.x-k8s.io/"):
                spec = plain(schemas[one["apiVersion"], one["kind"]]["properties"]["spec"])
                jsonschema.validate(one["spec"], spec)
                kinds.add(one["kind"])
    assert kinds == {"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Topology"}


def test_a_field_that_kueue_does_not_have_is_found(toolchain: Toolchain) -> None:
    schema = plain(kueue.schemas(toolchain)["kueue.x-k8s.io/v1beta2", "ClusterQueue"]["properties"]["spec"])
    with pytest.raises(jsonschema.ValidationError, match="cohort"):
        jsonschema.validate({"cohort": "lab"}, schema)  # as in v1beta1
