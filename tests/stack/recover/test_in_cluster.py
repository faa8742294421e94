"""A killed run's pending objects and Helm releases: the real engine, provider, helm and API server."""

from __future__ import annotations

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

from gpuform.checkout.paths import Paths
from gpuform.clouds import RECOVERIES
from gpuform.engine import Engine
from gpuform.engine.files import EngineFiles
from gpuform.stack.recover import Stack, UserDecisions, carry_out, find
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

PROGRAM = """
import pulumi
import pulumi_kubernetes as k8s
cluster = k8s.Provider("cluster", kubeconfig={kubeconfig!r}, enable_config_map_mutable=True)
o = pulumi.ResourceOptions(provider=cluster)
for name in ("first", "second", "third"):
    meta = {{"name": name, "namespace": {space!r}, "labels": {{"gpuform.io/environment": "tried"}}}}
    k8s.core.v1.ConfigMap(name, metadata=meta, data={{"a": "b"}}, opts=o)
for name in ("one", "two"):
    k8s.helm.v3.Release(name, chart={chart!r}, name=name, namespace={space!r}, timeout=20, opts=o)
"""
LATER = timedelta(minutes=10)


@dataclass
class Tried:
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
        return Stack("local", self.paths, self.engine, RECOVERIES, at_cloud=False)

    def find(self, decisions: UserDecisions | None = None, later: timedelta = LATER) -> Any:
        return find(self.stack, decisions, datetime.now(UTC) + later)

    def carry_out(self, plan: Any) -> None:
        carry_out(self.stack, plan, self.said.append)

    def run_helm(self, *words: str) -> str:
        place = ("--kubeconfig", self.kubeconfig, "-n", self.space)
        done = subprocess.run([self.helm, *words, *place], capture_output=True, text=True, check=True)
        return done.stdout

    def releases(self) -> dict[str, tuple[str, str]]:
        listed = json.loads(self.run_helm("list", "-a", "-o", "json"))
        return {one["name"]: (one["revision"], one["status"]) for one in listed}

    def never_ready(self, stuck: bool) -> None:
        """Set whether the chart has a Deployment that never becomes ready."""
        values = f"text: default\nstuck: {str(stuck).lower()}\n"
        (self.chart / "values.yaml").write_text(values)

    def kill(self, verb: str, name: str, *more: str) -> None:
        words = [verb, name, str(self.chart), "--wait", *more]
        place = ["--kubeconfig", self.kubeconfig, "-n", self.space]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([self.helm, *words, *place], **quiet)
        made, look = f"deployment.apps/{name}-stuck", ("get", "deployments", "-n", self.space, "-o", "name")
        until(lambda: self.kubectl(*look), lambda all_: made in all_)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def interrupted(self, *making: str, kind: str = "creating") -> None:
        file = EngineFiles(self.paths).checkpoint("tried", "local")
        content = json.loads(file.read_text())
        latest = content["checkpoint"]["latest"]
        named = {one["urn"].rpartition("::")[2]: one for one in latest["resources"]}
        unread = (
            {key: named[name][key] for key in named[name].keys() - {"id", "outputs"}} for name in making
        )
        latest["pending_operations"] = [{"type": kind, "resource": resource} for resource in unread]
        if kind == "creating":
            lost = [named[name] for name in making]
            latest["resources"] = [one for one in latest["resources"] if one not in lost]
        file.write_text(json.dumps(content))
        file.with_name(file.name + ".attrs").unlink(missing_ok=True)


_names = itertools.count()
CONFIG = """apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-cm"}
data: {text: "{{ .Values.text }}"}
"""
NEVER_READY = """{{ if .Values.stuck }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-stuck"}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      nodeSelector: {nowhere: "true"}
      containers: [{name: c, image: i}]
{{ end }}
"""


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
    program = PROGRAM.format(kubeconfig=kubeconfig, space=space, chart=str(chart))
    (root / "infra" / "__main__.py").write_text(program)
    paths = Paths(root, root / ".gpuform", tmp_path / "cache")
    engine = Engine(paths, control_plane.toolchain, say=lambda line: None)
    engine.up(on_event=lambda event: None)
    helm = str(control_plane.toolchain.path("helm"))
    return Tried(engine, paths, control_plane.kubectl, helm, kubeconfig, space, chart)


@pytest.mark.nightly
def test_objects_and_releases_that_are_there_are_imported(tried: Tried) -> None:
    tried.run_helm("uninstall", "two")
    tried.kubectl("delete", "configmap", "first", "second", "third", "-n", tried.space)
    tried.kubectl("create", "configmap", "third", "-n", tried.space)
    # A killed run applied another value. Its field manager must not conflict with the next update.
    old = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "old"}}
    old["metadata"] = {"name": "first", "labels": {"gpuform.io/environment": "tried"}}
    apply = ("apply", "--server-side", "--field-manager", "pulumi-kubernetes-0a1b2c3d", "-f", "-")
    tried.kubectl(*apply, "-n", tried.space, input=json.dumps(old))
    tried.interrupted("first", "second", "third", "one", "two")
    plan = tried.find()
    assert [(step.name, step.does, step.id) for step in plan.steps] == [
        ("first", "import", f"{tried.space}/first"),
        ("second", "clear", None),
        ("third", "leave", None),
        ("one", "import", f"{tried.space}/one"),
        ("two", "clear", None),
    ]
    assert "was not created by this resource" in plan.manual_items[0].why
    tried.kubectl("delete", "configmap", "third", "-n", tried.space)
    plan = tried.find()
    assert [step.does for step in plan.steps] == ["import", "clear", "clear", "import", "clear"]
    tried.carry_out(plan)
    assert not tried.find().has_work
    done = tried.engine.up(on_event=lambda event: None)
    made = {(step.op, step.name) for step in done.steps if step.op != "same"}
    # An imported release has the chart's name as its chart, but the program declares a folder.
    updated = {("update", name) for name in ("first", "one")}
    assert made == updated | {("create", name) for name in ("second", "third", "two")}
    assert not tried.engine.preview(on_event=lambda event: None).changed
    assert tried.releases() == {"one": ("2", "deployed"), "two": ("1", "deployed")}
    data = tried.kubectl("get", "configmap", "first", "-n", tried.space, "-o", "jsonpath={.data.a}")
    assert data == "b"


def test_a_first_installation_that_was_killed_is_finished_by_the_next_up(tried: Tried) -> None:
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
    tried.never_ready(True)
    tried.kill("install", "two")
    tried.never_ready(False)
    (young,) = tried.find(later=timedelta()).releases
    assert young.does == "leave"
    assert "run again in" in young.why
    assert decided() == ("finish", "mark failed")
    tried.carry_out(tried.find())
    assert not tried.find().has_work
    assert tried.releases()["two"] == ("1", "failed")
    require_finished(tried, "two", revision="2")


@pytest.mark.nightly
def test_an_upgrade_that_was_killed_is_rolled_back(tried: Tried) -> None:
    tried.never_ready(True)
    tried.kill("upgrade", "one")
    tried.never_ready(False)
    assert tried.releases()["one"] == ("2", "pending-upgrade")
    tried.interrupted("one", kind="updating")
    plan = tried.find()
    (release,) = plan.releases
    assert (release.id, release.does, release.revision) == (f"{tried.space}/one", "roll back", 1)
    assert [step.does for step in plan.steps] == ["refresh"]
    tried.carry_out(plan)
    assert f"release {tried.space}/one: rolled back to revision 1" in tried.said
    assert tried.releases()["one"] == ("3", "deployed")
    assert "stuck" not in tried.kubectl("get", "deployments", "-n", tried.space, "-o", "name")
    assert not tried.find().has_work
    assert not tried.engine.preview(on_event=lambda event: None).changed
    tried.run_helm("rollback", "one", "2")
    fail = {"metadata": {"labels": {"status": "failed"}}}
    secret = ("secret", "sh.helm.release.v1.one.v4", "-n", tried.space)
    tried.kubectl("patch", *secret, "--type=merge", "-p", json.dumps(fail))
    tried.interrupted("one", kind="updating")
    plan = tried.find()
    assert [step.does for step in plan.steps] == ["finish"], "the state alone calls it unchanged"
    tried.carry_out(plan)
    require_finished(tried, "one", revision="5")


def require_finished(tried: Tried, name: str, revision: str) -> None:
    done = tried.engine.up(on_event=lambda event: None)
    assert {(step.op, step.name) for step in done.steps if step.op != "same"} == {("update", name)}
    assert tried.releases()[name] == (revision, "deployed")
    assert "stuck" not in tried.kubectl("get", "deployments", "-n", tried.space, "-o", "name")
    assert not tried.engine.preview(on_event=lambda event: None).changed
