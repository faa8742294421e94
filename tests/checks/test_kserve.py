"""KServe's own charts: what they make of the values, and the planned objects against the CRDs' schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infra.model.kserve import FORMATS, KSERVE
from infra.plan import charts
from lab.toolchain import Toolchain
from lab.toolchain.module_files import Source
from tests import external
from tests.checks import everything, kueue
from tests.checks.charts import of, rendered
from tests.checks.everything import Document
from tests.checks.test_kueue import plain

RUNTIMES = Source(
    "kserve-runtimes",
    "KServe's runtimes",
    "github.com/kserve/kserve",
    Path("config/runtimes"),
    "kserve-tritonserver.yaml",
)
pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def made(toolchain: Toolchain) -> list[Document]:
    ((_, values),) = of("kserve-resources")
    return rendered(toolchain, "kserve-resources", values, KSERVE)


def test_every_object_is_valid_under_kserves_crds(toolchain: Toolchain) -> None:
    schemas = kueue.schemas(toolchain, "kserve-crd")
    found = [one for one in everything.objects("served by KServe") if "kserve.io" in one["apiVersion"]]
    for one in found:
        jsonschema.validate(one["spec"], plain(schemas[one["apiVersion"], one["kind"]]["properties"]["spec"]))
    assert {one["kind"] for one in found} == {"InferenceService", "ServingRuntime"}
    schema = plain(schemas["serving.kserve.io/v1beta1", "InferenceService"]["properties"]["spec"])
    with pytest.raises(jsonschema.ValidationError, match="storageURI"):
        jsonschema.validate({"predictor": {"model": {"storageURI": "s3://a"}}}, schema)


def test_the_configuration_is_what_the_values_say(made: list[Document]) -> None:
    (found,) = [one for one in made if one["metadata"]["name"] == "inferenceservice-config"]
    config: dict[str, Any] = {key: json.loads(text) for key, text in found["data"].items() if key[0] != "_"}
    assert config["deploy"] == {"defaultDeploymentMode": "Standard"}
    assert set(config["inferenceService"]["resource"].values()) == {""}, "no limits but those declared"
    assert config["ingress"]["disableIngressCreation"] is True
    assert config["ingress"]["ingressDomain"] == "svc.cluster.local"
    assert config["ingress"]["domainTemplate"] == "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"


def test_nothing_is_left_in_the_namespace_kserve(made: list[Document]) -> None:
    """The chart replaces its own namespace in files."""
    spaces = {one["metadata"]["namespace"] for one in made if "namespace" in one["metadata"]}
    assert spaces == {KSERVE}
    text = yaml.safe_dump_all(made)
    assert "namespace: kserve\n" not in text
    assert ".kserve.svc" not in text
    assert "inject-ca-from: kserve/" not in text


def test_images_are_those_of_the_table(made: list[Document]) -> None:
    deployments = [one for one in made if one["kind"] == "Deployment"]
    found = {c["image"] for one in deployments for c in one["spec"]["template"]["spec"]["containers"]}
    found |= {one["spec"]["container"]["image"] for one in made if one["kind"] == "ClusterStorageContainer"}
    table = charts.PINNED["kserve-resources"][1]
    assert found == {f"{one.name.removeprefix('docker.io/')}:{one.tag}" for one in table}


def test_formats_are_those_of_kserves_runtime_for_triton() -> None:
    file = external.module(RUNTIMES, "kserve") / RUNTIMES.proof
    triton = yaml.safe_load(file.read_text())
    assert {one["name"] for one in triton["spec"]["supportedModelFormats"]} == set(FORMATS)
