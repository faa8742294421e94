"""What the charts of Kueue and KServe make of the values, and what KServe's own files say.

tests/checks/test_api_server.py sends that and the planned objects to a real API server with their CRDs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.model.base.namespaces import KSERVE, KUEUE
from infra.model.platform.monitoring import Monitoring
from infra.model.workload.serving import FORMATS
from infra.plan import charts, monitoring, queues
from lab.toolchain import Toolchain
from lab.toolchain.module_files import Source
from tests import external
from tests.checks import everything
from tests.checks.charts import rendered, values_of
from tests.checks.everything import Document

pytestmark = pytest.mark.tools

NAMED = [name for name, env in everything.environments().items() if env.queues]
ITS_OWN = ("clusterqueue", "cohort", "resourceflavor", "workload")
"""Kinds of Kueue, which only have objects of its users."""


@pytest.fixture(scope="module", params=NAMED)
def made(request: pytest.FixtureRequest, toolchain: Toolchain) -> tuple[str, list[Document]]:
    (values,) = [values for name, values in values_of("kueue") if name == request.param]
    return request.param, rendered(toolchain, "kueue", values, "kueue-system")


def webhooks(objects: list[Document]) -> Iterator[Document]:
    for item in objects:
        if item["kind"] in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            yield from item["webhooks"]


def test_nothing_outside_of_teams_depends_on_kueue(made: tuple[str, list[Document]]) -> None:
    name, objects = made
    declared = everything.environments()[name].queues
    assert declared is not None
    spaces = sorted(space for team in declared.teams for space in team.namespaces)
    here = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": spaces}]}
    found = {item["name"]: item for item in webhooks(objects)}
    assert {"mjob.kb.io", "mpod.kb.io", "mdeployment.kb.io", "vjob.kb.io", "vpod.kb.io"} <= set(found)
    for webhook, entry in found.items():
        if webhook.split(".")[0][1:] not in ITS_OWN:
            assert entry["namespaceSelector"] == here, webhook


def test_the_chart_passes_the_configuration_on(made: tuple[str, list[Document]]) -> None:
    name, objects = made
    env = everything.environments()[name]
    assert env.queues is not None
    (config,) = [item for item in objects if item["kind"] == "ConfigMap"]
    found = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    assert found.pop("internalCertManagement")["enable"] is True
    assert found == queues.configuration(env, env.queues)


def test_the_image_is_the_published_one_and_the_only_one(made: tuple[str, list[Document]]) -> None:
    """The release of Kueue puts its registry and tag into the chart; the module has those of its builds."""
    deployments = [item for item in made[1] if item["kind"] == "Deployment"]
    (container,) = [entry for each in deployments for entry in each["spec"]["template"]["spec"]["containers"]]
    assert container["image"] == "registry.k8s.io/kueue/kueue:v0.19.2"
    replicas = 1 if everything.environments()[made[0]].cluster.kind == "embedded" else 2
    assert [one["spec"]["replicas"] for one in deployments] == [replicas]
    budgets = [one for one in made[1] if one["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == replicas - 1


def test_prometheus_finds_the_metrics_of_kueue(made: tuple[str, list[Document]]) -> None:
    values = monitoring.values(everything.environments()[made[0]], Monitoring())
    (monitor,) = [
        item for item in values["prometheus"]["additionalServiceMonitors"] if item["name"] == "kueue"
    ]
    wanted = monitor["selector"]["matchLabels"].items()
    (service,) = [
        entry
        for entry in made[1]
        if entry["kind"] == "Service" and wanted <= entry["metadata"]["labels"].items()
    ]
    assert service["metadata"]["namespace"] == KUEUE
    assert [one["name"] for one in service["spec"]["ports"]] == [monitor["endpoints"][0]["port"]]


RUNTIMES = Source(
    "kserve-runtimes",
    "KServe's runtimes",
    "github.com/kserve/kserve",
    Path("config/runtimes"),
    "kserve-tritonserver.yaml",
)


@pytest.fixture(scope="module")
def kserve(toolchain: Toolchain) -> list[Document]:
    ((_, values),) = values_of("kserve-resources")
    return rendered(toolchain, "kserve-resources", values, KSERVE)


def test_the_configuration_is_what_the_values_say(kserve: list[Document]) -> None:
    (found,) = [item for item in kserve if item["metadata"]["name"] == "inferenceservice-config"]
    config: dict[str, Any] = {key: json.loads(text) for key, text in found["data"].items() if key[0] != "_"}
    assert config["deploy"] == {"defaultDeploymentMode": "Standard"}
    assert set(config["inferenceService"]["resource"].values()) == {""}, "no limits but those declared"
    assert config["ingress"]["disableIngressCreation"] is True
    assert config["ingress"]["ingressDomain"] == "svc.cluster.local"
    assert config["ingress"]["domainTemplate"] == "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"


def test_nothing_is_left_in_the_namespace_kserve(kserve: list[Document]) -> None:
    """The chart replaces its own namespace in files."""
    spaces = {item["metadata"]["namespace"] for item in kserve if "namespace" in item["metadata"]}
    assert spaces == {KSERVE}
    text = yaml.safe_dump_all(kserve)
    assert "namespace: kserve\n" not in text
    assert ".kserve.svc" not in text
    assert "inject-ca-from: kserve/" not in text


def test_images_are_those_of_the_table(kserve: list[Document]) -> None:
    deployments = [item for item in kserve if item["kind"] == "Deployment"]
    found = {c["image"] for entry in deployments for c in entry["spec"]["template"]["spec"]["containers"]}
    found |= {one["spec"]["container"]["image"] for one in kserve if one["kind"] == "ClusterStorageContainer"}
    table = charts.PINNED["kserve-resources"][1]
    assert found == {f"{one.name.removeprefix('docker.io/')}:{one.tag}" for one in table}


def test_formats_are_those_of_kserves_runtime_for_triton() -> None:
    file = external.module(RUNTIMES, "kserve") / RUNTIMES.required_file
    triton = yaml.safe_load(file.read_text())
    assert {item["name"] for item in triton["spec"]["supportedModelFormats"]} == set(FORMATS)
