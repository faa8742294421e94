"""Objects and Helm releases that a killed run was making: the real engine, helm and API server."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import Engine
from gpuform.engine.places import Places
from gpuform.paths import Paths
from gpuform.plugins.kubernetes.kubeconfig import resolve
from gpuform.plugins.kubernetes.release_helm import Helm
from gpuform.plugins.kubernetes.release_history import owner
from gpuform.recover import Stack, Told, carry_out, find
from tests.plugins.release.conftest import CONFIG, NEVER_READY
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

PROGRAM = """
import pulumi
import pulumi_kubernetes as k8s
o = pulumi.ResourceOptions(provider=k8s.Provider("cluster", kubeconfig={kubeconfig!r}))
for name in ("first", "second", "third"):
    meta = {{"name": name, "namespace": {space!r}, "labels": {{"gpuform.io/environment": "tried"}}}}
    k8s.core.v1.ConfigMap(name, metadata=meta, data={{"a": "b"}}, opts=o)
for name in ("one", "two"):
    k8s.helm.v3.Release(name, chart={chart!r}, name=name, namespace={space!r}, timeout=20, opts=o)
"""
LATER = timedelta(minutes=10)


@dataclass
class Tried:
    """A checkout whose program is in the cluster, and what was said of its recovery."""

    engine: Engine
    paths: Paths
    kubectl: Callable[..., str]
    helm: str
    kubeconfig: str
    space: str
    chart: Path
    said: list[str] = field(default_factory=list)

    @property
    def stack(self) -> Stack:
        return Stack("local", self.paths, self.engine, at_cloud=False)

    def find(self, told: Told | None = None, later: timedelta = LATER) -> Any:
        return find(self.stack, told, datetime.now(UTC) + later)

    def carry_out(self, plan: Any) -> None:
        carry_out(self.stack, plan, self.said.append)

    def run_helm(self, *words: str) -> str:
        place = ("--kubeconfig", self.kubeconfig, "-n", self.space)
        done = subprocess.run([self.helm, *words, *place], capture_output=True, text=True, check=True)
        return done.stdout

    def releases(self) -> dict[str, tuple[str, str]]:
        """Revision and status of each release by name."""
        listed = json.loads(self.run_helm("list", "-a", "-o", "json"))
        return {one["name"]: (one["revision"], one["status"]) for one in listed}

    def kill_helm(self, verb: str, name: str, revision: int, urn: str) -> None:
        """helm as our plugin starts it, killed while it waits for what never gets ready."""
        labels = f"gpuform.io/urn={owner(urn)},gpuform.io/revision={revision}"
        self.kill(verb, name, "--set", "stuck=true", "--labels", labels)

    def kill(self, verb: str, name: str, *more: str) -> None:
        words = [verb, name, str(self.chart), "--wait", *more]
        place = ["--kubeconfig", self.kubeconfig, "-n", self.space]
        process = subprocess.Popen(
            [self.helm, *words, *place], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        made = f"deployment.apps/{name}-stuck"
        until(
            lambda: self.kubectl("get", "deployments", "-n", self.space, "-o", "name"),
            lambda all_: made in all_,
        )
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def interrupted(self, *making: str, gone: tuple[str, ...] = ()) -> None:
        """The state of a run that was killed while it made these."""
        file = Places(self.paths).checkpoint("tried", "local")
        content = json.loads(file.read_text())
        latest = content["checkpoint"]["latest"]
        named = {one["urn"].rpartition("::")[2]: one for one in latest["resources"]}
        latest["pending_operations"] = [
            {
                "type": "creating",
                "resource": {key: item for key, item in named[name].items() if key not in ("id", "outputs")},
            }
            for name in making
        ]
        latest["resources"] = [
            one for one in latest["resources"] if one not in [named[name] for name in making]
        ]
        file.write_text(json.dumps(content))
        file.with_name(file.name + ".attrs").unlink(missing_ok=True)

    def urn(self, name: str) -> str:
        state = self.engine.deployment(self.stack.env, "local")["deployment"]
        return next(str(one["urn"]) for one in state["resources"] if one["urn"].endswith(f"::{name}"))


_names = itertools.count()


@pytest.fixture
def tried(control_plane: Any, tmp_path: Path) -> Tried:
    space = f"recover-{os.getpid()}-{next(_names)}"
    control_plane.kubectl("create", "namespace", space)
    root, chart = tmp_path / "checkout", tmp_path / "tiny"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: tiny\nversion: 0.1.0\nappVersion: '1.0'\n")
    (chart / "values.yaml").write_text("text: default\nstuck: false\n")
    (chart / "templates" / "cm.yaml").write_text(CONFIG)
    (chart / "templates" / "stuck.yaml").write_text(NEVER_READY)
    (root / "infra").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    (root / "Pulumi.local.yaml").write_text("config: {}\n")
    kubeconfig = str(control_plane.kubeconfig)
    (root / "infra" / "__main__.py").write_text(
        PROGRAM.format(kubeconfig=kubeconfig, space=space, chart=str(chart))
    )
    paths = Paths(root, root / ".gpuform", tmp_path / "cache")
    engine = Engine(paths, control_plane.toolchain, say=lambda line: None)
    engine.up(on_event=lambda event: None)
    helm = str(control_plane.toolchain.path("helm"))
    return Tried(engine, paths, control_plane.kubectl, helm, kubeconfig, space, chart)


def test_objects_and_releases_that_are_there_are_imported(tried: Tried) -> None:
    urn = tried.urn("two")
    tried.run_helm("uninstall", "two")
    tried.kubectl("delete", "configmap", "first", "second", "third", "-n", tried.space)
    tried.kubectl("create", "configmap", "third", "-n", tried.space)
    # As the official provider leaves one: the name of the field manager says nothing.
    tried.kubectl("create", "configmap", "first", "-n", tried.space, "--from-literal=a=b")
    tried.kubectl("label", "configmap", "first", "-n", tried.space, "gpuform.io/environment=tried")
    tried.interrupted("first", "second", "third", "one", "two")
    plan = tried.find()
    assert [(step.name, step.does, step.id) for step in plan.steps] == [
        ("first", "import", f"{tried.space}/first"),
        ("second", "clear", None),
        ("third", "leave", None),
        ("one", "import", f"{tried.space}/one"),
        ("two", "clear", None),
    ]
    assert "this resource did not make it" in plan.left[0].why
    tried.kubectl("delete", "configmap", "third", "-n", tried.space)
    tried.kill_helm("install", "two", 1, urn)
    plan = tried.find()
    assert [step.does for step in plan.steps] == ["import", "clear", "clear", "import", "clear"]
    assert [(one.id, one.status, one.does) for one in plan.releases] == [
        (f"{tried.space}/two", "pending-install", "uninstall")
    ]
    tried.carry_out(plan)
    assert f"release {tried.space}/two: uninstalled" in tried.said
    assert not tried.find().to_do
    assert set(tried.releases()) == {"one"}
    done = tried.engine.up(on_event=lambda event: None)
    made = {(step.op, step.name) for step in done.steps if step.op != "same"}
    assert made == {("create", "second"), ("create", "third"), ("create", "two")}
    assert not tried.engine.preview(on_event=lambda event: None).changed
    assert tried.releases() == {"one": ("1", "deployed"), "two": ("1", "deployed")}


def test_a_release_without_our_label_is_ours_by_its_content(tried: Tried) -> None:
    """The official provider labels none."""

    def decided() -> tuple[str, ...]:
        plan = tried.find()
        return (plan.steps[0].does, *(one.does for one in plan.releases))

    tried.run_helm("uninstall", "two")
    tried.run_helm("install", "two", str(tried.chart), "--set", "text=other")
    tried.interrupted("two")
    assert decided() == ("leave",)
    tried.run_helm("uninstall", "two")
    tried.run_helm("install", "two", str(tried.chart))
    assert decided() == ("import",)
    tried.run_helm("upgrade", "two", str(tried.chart))
    assert decided() == ("leave",)
    tried.run_helm("uninstall", "two")
    (tried.chart / "values.yaml").write_text("text: default\nstuck: true\n")
    tried.kill("install", "two")
    assert decided() == ("clear", "uninstall")
    tried.carry_out(tried.find())
    assert "two" not in tried.releases()


def test_a_pending_upgrade_is_rolled_back_once_nobody_is_at_it(tried: Tried) -> None:
    tried.kill_helm("upgrade", "one", 2, tried.urn("one"))
    assert tried.releases()["one"] == ("2", "pending-upgrade")
    (young,) = tried.find(later=timedelta()).releases
    assert young.does == "leave"
    assert "look again in" in young.why
    id = f"{tried.space}/one"
    helm = Helm(resolve({"kubeconfig": tried.kubeconfig}), Path(tried.helm), tried.paths.state)

    async def at_work() -> Any:
        async with helm.alone(id):
            return await asyncio.to_thread(tried.find)

    (busy,) = asyncio.run(at_work()).releases
    assert (busy.does, busy.why) == (
        "leave",
        "a helm that this checkout started is at work on it; wait for it",
    )
    plan = tried.find()
    assert [(one.id, one.does, one.revision) for one in plan.releases] == [(id, "roll back", 1)]
    tried.carry_out(plan)
    assert tried.said == [f"release {id}: rolled back to revision 1"]
    assert tried.releases()["one"] == ("3", "deployed")
    assert "stuck" not in tried.kubectl("get", "deployments", "-n", tried.space, "-o", "name")
    assert not tried.find().to_do
    assert not tried.engine.preview(on_event=lambda event: None).changed
    tried.kill_helm("upgrade", "one", 3, tried.urn("one"))
    (by_hand,) = tried.find().releases
    assert (by_hand.does, by_hand.why) == ("leave", "revision 4 is by somebody's own hand; wait for it")
