"""The component package, as seen by a program in another language."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import EngineFailure
from gpuform.engine.events import SIMULATED_NODES
from tests.build.environments import declared
from tests.conftest import Plane
from tests.engine.conftest import Project

pytestmark = pytest.mark.engine

CHECKOUT = Paths.here().root
REMOTE = """
import pulumi

class Remote(pulumi.ComponentResource):
    def __init__(self, kind, name, props, **opts):
        opts = pulumi.ResourceOptions(**opts)
        super().__init__(f"gpuform:index:{kind}", name, props, opts, remote=True)

"""
"""What a generated SDK does, in one class."""


def remote(kind: str, environment: Any, name: str = "mine", source: str = "", **props: Any) -> str:
    """A line of a program with a component of the package; ``source`` are options with its address."""
    return f"Remote({kind!r}, {name!r}, {dict(props, environment=environment)!r}{source})\n"


def write_project(project: Project, more: dict[str, Any]) -> None:
    content = {"name": "tried", "main": "infra/", "runtime": "python", **more}
    (project.paths.root / "Pulumi.yaml").write_text(json.dumps(content))


@pytest.fixture
def using(project: Project) -> Project:
    write_project(project, {"plugins": {"providers": [{"name": "gpuform", "path": str(CHECKOUT)}]}})
    return project


def test_the_schema_names_the_component_and_what_it_takes(project: Project) -> None:
    env = project.engine.prepare()
    command = [project.paths.shims / "pulumi", "package", "get-schema", CHECKOUT]
    done = subprocess.run(command, env=env, cwd=project.paths.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    schema = json.loads(done.stdout)
    assert schema["name"] == "gpuform"
    assert {token.rpartition(":")[2] for token in schema["resources"]} == {
        "GpuPlatform", "GpuDeployment", "GpuJob", "GpuPod"
    }  # fmt: skip
    one = schema["resources"]["gpuform:index:GpuDeployment"]
    assert one["requiredInputs"] == ["environment", "workload"]
    assert one["properties"]["asks"]["additionalProperties"]["type"] == "string"
    resource = schema["resources"]["gpuform:index:GpuPlatform"]
    assert resource["isComponent"]
    assert resource["requiredInputs"] == ["environment"]
    assert resource["inputProperties"]["environment"]["plain"]
    assert resource["inputProperties"]["environment"]["$ref"] == "#/types/gpuform:index:Environment"
    assert one["inputProperties"]["workload"]["$ref"] == "#/types/gpuform:index:GpuDeploymentWorkload"
    assert "kind" not in schema["types"]["gpuform:index:GpuDeploymentWorkload"]["properties"]
    assert resource["inputProperties"]["kubeconfig"]["type"] == "string"
    file = project.paths.root / "schema.json"
    file.write_text(done.stdout)
    checked = [project.paths.shims / "pulumi", "schema", "check", file]
    assert subprocess.run(checked, env=env, cwd=project.paths.root).returncode == 0


SLICED = {"machine": "g4.p1.40g", "sharing": {"kind": "mig", "layout": {"3g.20gb": 1}}}
PARTITIONED = declared("embedded", SLICED)
CPU_ONLY = declared("embedded", {"machine": "m6i.xlarge", "nodes": 2})
SHARED = declared("embedded", {"machine": "g2.5xlarge", "sharing": {"kind": "time_slicing", "replicas": 4}})
ADDRESS = "git.example.com/team/gpuform"
SOURCES = {
    "path": "",
    "git": f", version='0.1.0', plugin_download_url='git://{ADDRESS}'",
}
"""What `pulumi package add` writes for a package into Pulumi.yaml, or into the SDK that it generates."""


@pytest.mark.cluster
@pytest.mark.parametrize("source", SOURCES)
def test_a_program_needs_no_folder_of_ours_on_its_path(
    project: Project, control_plane: Plane, source: str
) -> None:
    """The plugin of a git address lies where the engine puts it: this test cannot download one."""
    packages = {"packages": {"gpuform": str(CHECKOUT)}} if source == "path" else {}
    write_project(project, packages)
    kubeconfig = str(control_plane.kubeconfig)
    platform = remote("GpuPlatform", PARTITIONED, source=SOURCES[source], kubeconfig=kubeconfig)
    project.program(REMOTE + platform)
    env = project.engine.prepare()
    plugins = Path(env["PULUMI_HOME"], "plugins")
    (ours,) = plugins.glob("resource-gpuform-*")
    shutil.rmtree(ours)
    if source == "git":
        cloned = plugins / f"resource-{ADDRESS.replace('/', '_')}.git-v0.1.0"
        cloned.mkdir()
        for item in CHECKOUT.iterdir():
            (cloned / item.name).symlink_to(item)
    env |= {"PATH": "/usr/bin:/bin", "PULUMI_IGNORE_AMBIENT_PLUGINS": "true"}
    pulumi = (project.paths.shims / "pulumi").resolve()
    command = [pulumi, "preview", "--json", "--non-interactive"]
    done = subprocess.run(command, env=env, cwd=project.paths.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    steps = json.loads(done.stdout)["steps"]
    assert "gpuform:nodes:MigLayout" in {step["newState"]["type"] for step in steps}


@pytest.mark.nightly
@pytest.mark.cluster
def test_one_workload_takes_what_it_needs_from_the_pool(using: Project, control_plane: Plane) -> None:
    kubeconfig = str(control_plane.kubeconfig)
    work = {"name": "w", "pool": "p", "image": "a:1"}
    for component, message in (
        (
            remote("GpuPod", SHARED, workload=work, kubeconfig=kubeconfig),
            "pool: unknown pool 'p'; did you mean p0?",
        ),
        (remote("GpuPlatform", CPU_ONLY), "kubeconfig: is missing; an embedded cluster needs the path"),
    ):
        using.program(REMOTE + component)
        with pytest.raises(EngineFailure) as caught:
            using.engine.preview()
        said = "\n".join(caught.value.result.errors)
        assert message in said.replace("property kubeconfig has a problem", "kubeconfig")
        assert "Traceback" not in said
        assert ".py" not in said
    right = {**work, "pool": "p0"}
    using.program(REMOTE + remote("GpuPod", SHARED, workload=right, kubeconfig=kubeconfig))
    (pod,) = [step for step in using.engine.preview().steps if step.type == "kubernetes:core/v1:Pod"]
    assert pod.change is not None
    spec = pod.change.after["spec"]
    assert spec["nodeSelector"] == {"gpuform.io/pool": "p0"}
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu.shared"] == "1"
    assert "index:GpuPod$gpuform:workloads:GpuPod$" in pod.urn


@pytest.mark.nightly
@pytest.mark.cluster
def test_the_component_plans_the_platform(using: Project, control_plane: Plane) -> None:
    kubeconfig = str(control_plane.kubeconfig)
    both = [remote("GpuPlatform", CPU_ONLY, name, kubeconfig=kubeconfig) for name in ("mine", "other")]
    using.program(REMOTE + "".join(both))
    steps = using.engine.preview().steps
    planned = [step.type for step in steps]
    assert planned.count("gpuform:index:GpuPlatform") == 2
    pools = [step for step in steps if step.type == SIMULATED_NODES]
    assert {step.name.split("-")[0] for step in pools} == {"mine", "other"}
    assert [len(step.change.after["nodes"]) for step in pools if step.change] == [2, 2]
    assert all("GpuPlatform$gpuform:platform:NodePools$" in step.urn for step in pools)


@pytest.mark.nightly
@pytest.mark.cluster
def test_a_state_of_the_packages_former_name_keeps_its_resources(
    using: Project, control_plane: Plane
) -> None:
    using.program(REMOTE + remote("GpuPlatform", CPU_ONLY, kubeconfig=str(control_plane.kubeconfig)))
    using.engine.up()
    state = json.dumps(using.engine.export())
    former = state.replace("gpuform:index:GpuPlatform", "gpuform-platform:index:GpuPlatform")
    assert former != state
    using.engine.restore("local", json.loads(former))
    assert using.engine.preview().steps == ()
    using.engine.destroy()
