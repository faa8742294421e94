"""The component package, as a program in another language meets it."""

from __future__ import annotations

import json
import subprocess

import pytest

from gpuform.engine import EngineFailure
from gpuform.paths import Paths
from tests.conftest import Plane
from tests.engine.conftest import Project

pytestmark = pytest.mark.engine

CHECKOUT = Paths.here().root

# What a generated SDK does, in one class.
PLATFORM = """
import pulumi

class GpuPlatform(pulumi.ComponentResource):
    def __init__(self, name, **props):
        props["offered"] = None
        super().__init__("gpuform-platform:index:GpuPlatform", name, props, remote=True)

GpuPlatform("mine", environment={environment!r}{more})
"""


@pytest.fixture
def using(project: Project) -> Project:
    """A project that takes the package from this checkout."""
    (project.paths.root / "Pulumi.yaml").write_text(
        json.dumps(
            {
                "name": "tried",
                "main": "infra/",
                "runtime": "python",
                "plugins": {"providers": [{"name": "gpuform-platform", "path": str(CHECKOUT)}]},
            }
        )
    )
    return project


def test_the_schema_names_the_component_and_what_it_takes(project: Project) -> None:
    env = project.engine.prepare()
    command = [project.paths.shims / "pulumi", "package", "get-schema", CHECKOUT]
    done = subprocess.run(command, env=env, cwd=project.paths.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    schema = json.loads(done.stdout)
    assert schema["name"] == "gpuform-platform"
    (token, resource), *others = schema["resources"].items()
    assert not others
    assert token == "gpuform-platform:index:GpuPlatform"
    assert resource["isComponent"]
    assert resource["requiredInputs"] == ["environment"]
    assert resource["inputProperties"]["environment"]["plain"]
    assert resource["inputProperties"]["kubeconfig"]["type"] == "string"


CPU_ONLY = {
    "name": "tried",
    "cluster": {"kind": "embedded"},
    "pools": [{"name": "cpu", "machine": "m6i.xlarge", "nodes": 2}],
}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"name": "tried", "colour": "blue"}, "colour: unknown key"),
        (CPU_ONLY, "kubeconfig: is missing; an embedded cluster needs the path"),
    ],
)
def test_bad_input_fails_with_its_message_alone(using: Project, environment: object, message: str) -> None:
    using.program(PLATFORM.format(environment=environment, more=""))
    with pytest.raises(EngineFailure) as caught:
        using.engine.preview()
    said = "\n".join(caught.value.result.errors)
    assert message in said.replace("property kubeconfig has a problem", "kubeconfig")
    assert "Traceback" not in said
    assert ".py" not in said


@pytest.mark.cluster
def test_the_component_plans_the_platform(using: Project, control_plane: Plane) -> None:
    more = f", kubeconfig={str(control_plane.kubeconfig)!r}"
    one = PLATFORM.format(environment=CPU_ONLY, more=more)
    using.program(f"{one}\nGpuPlatform('other', environment={CPU_ONLY!r}{more})")
    steps = using.engine.preview().steps
    planned = [step.type for step in steps]
    assert planned.count("gpuform-platform:index:GpuPlatform") == 2
    nodes = [step for step in steps if step.type == "kubernetes:core/v1:Node"]
    assert {step.name.split("-")[0] for step in nodes} == {"mine", "other"}
    assert len(nodes) == 4
    assert all("GpuPlatform$gpuform:platform:NodePools$" in step.urn for step in nodes), (
        "inside the component"
    )
