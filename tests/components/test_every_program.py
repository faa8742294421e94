"""What holds of the programs of all environments, and what a change of the operator's mode does."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes
import pytest
import yaml

from infra.config import parse
from infra.plan.render import render
from infra.program.platform import platform
from infra.program.target import Target
from policies.pack import RULES
from policies.rule import judge
from tests.build.aws_stacks import ROOT
from tests.build.openstack_stacks import T4
from tests.components.programs import PLAIN, PROGRAMS
from tests.fakes.recorder import record_once, run

pytestmark = pytest.mark.unit

RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.mark.parametrize("name", PROGRAMS)
def test_preview_and_up_register_the_same_resources(name: str) -> None:
    """None hides behind an Output."""
    preview, real = record_once(PROGRAMS[name], preview=True), record_once(PROGRAMS[name])
    assert preview.registered() == real.registered()
    named = [(item.type, item.name) for item in real.resources]
    assert len(named) == len(set(named)), "the engine refuses two resources of one name"
    for provider in real.of("pulumi:providers:kubernetes"):
        # A ConfigMap of the same name changes in place: replaced, a dashboard would disappear meanwhile.
        assert provider.inputs["enableConfigMapMutable"] == "true"
        # By the client, large CRDs exceed the limit of annotations; the default of pulumi-kubernetes 4.
        assert provider.inputs.get("enableServerSideApply", "true") == "true"


EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text())["config"]["gpuform:environment"]
    for path in sorted((ROOT / "docs/examples").glob("*.yaml"))
    if path.stem != "onprem-air-gap"  # names files with keys, which its program reads
}


@pytest.mark.parametrize("name", [*PROGRAMS, *EXAMPLES])
def test_render_shows_every_object_and_release_of_the_program(name: str) -> None:
    """Not patches of what a chart creates."""
    environment = {**PROGRAMS, **EXAMPLES}[name]
    shown = {
        _shown(document)
        for text in render(parse(environment)).values()
        for document in yaml.load_all(text, yaml.CSafeLoader)
    }
    created = [item for item in record_once(environment).resources if item.type.startswith("kubernetes:")]
    assert {(item.type, _name(item.inputs)) for item in created if not item.type.endswith("Patch")} <= shown


@pytest.mark.parametrize("name", [*PROGRAMS, *EXAMPLES])
def test_the_policies_hold(name: str) -> None:
    """Those of severity low only warn, by the date of the run."""
    found = judge(RULES, record_once({**PROGRAMS, **EXAMPLES}[name]).judged())
    broken = [item for item in found if item.rule.severity != "low"]
    if name == "onprem-infiniband":  # its user exempts the namespace of pods that lock memory
        broken = [item for item in broken if item.resource.name != "namespaces-training"]
    assert [(item.rule.id, item.resource.name, item.fact) for item in broken] == []


def _shown(document: dict[str, Any]) -> tuple[str, str]:
    """Type and name of an object or a release; others are for review alone."""
    if "chart" in document:
        return RELEASE, document["name"]
    version = document.get("apiVersion", "")
    version = version if "/" in version else f"core/{version}"
    return f"kubernetes:{version}:{document.get('kind')}", _name(document) if "kind" in document else ""


def _name(inputs: dict[str, Any]) -> str:
    metadata = inputs.get("metadata") or {"name": inputs["name"]}
    return "/".join(metadata[key] for key in ("namespace", "name") if key in metadata)


EMBEDDED = {**PLAIN, "cluster": {"kind": "embedded"}, "pools": [{**T4, "name": "t4"}]}


def requests_in_mode(mode: str, declared: dict[str, Any]) -> dict[str, Any]:
    env = parse({**declared, "gpu_operator": {"mode": mode, "mig_strategy": "none"}})

    def program() -> None:
        provider = pulumi_kubernetes.Provider("k")
        platform(env, Target(provider=provider, kubeconfig=pulumi.Output.from_input("k")))

    return {f"{resource.type} {resource.name}": resource.request for resource in run(program).resources}


@pytest.mark.parametrize(
    ("mode", "new", "old"),
    [
        ("operator", "GpuOperator gpu-operator", "DevicePlugin device-plugin"),
        ("device_plugin", "DevicePlugin device-plugin", "GpuOperator gpu-operator"),
    ],
)
def test_the_operator_goes_before_the_device_plugin_comes_and_back(mode: str, new: str, old: str) -> None:
    """Both charts have DaemonSets of the same names, and would both offer the same GPUs."""
    requests = requests_in_mode(mode, EMBEDDED)
    (alias,) = requests[f"gpuform:platform:{new}"].aliases
    assert f"{alias.spec.type} {alias.spec.name}" == f"gpuform:platform:{old}"
    (release,) = [request for key, request in requests.items() if key.startswith(RELEASE)]
    assert release.name == f"{new.split()[1]}-release", "the engine makes the alias of a child from this"
    assert release.deleteBeforeReplace
    removals = [request for key, request in requests.items() if "GpuOperatorRemoval" in key]
    assert len(removals) == (mode == "operator"), "its labels go with it"
    (before,) = [request for key, request in requests.items() if "Removal " in key]
    assert before.name == f"{new.split()[1]}-removal"


def test_beside_the_clusters_own_operator_nothing_of_ours_is_installed() -> None:
    """Nor is its namespace ours: a destroy would delete it."""
    existing, installed = (
        {key for key in requests_in_mode(mode, PLAIN) if "gpuform:" not in key}
        for mode in ("existing", "operator")
    )
    assert not [key for key in existing if key.startswith(RELEASE)]
    assert {key for key in existing if "Namespace" in key} == {
        "kubernetes:core/v1:Namespace namespaces-gpuform-platform"
    }
    for part in ("gpu-operator-release", "namespaces-gpu-operator", "readiness-gate"):
        assert [key for key in installed if part in key]
    assert not [key for key in existing if "readiness-gate" in key], "its operands do not tolerate our taint"
