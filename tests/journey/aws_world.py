"""An AWS stack offline: the real program and engine, the embedded control plane for EKS, charts on loopback.

Nodes of elastic pools have their startup taint, and the readiness gate's own program lifts it.
The charts that AWS and NVIDIA publish are out of reach, so helm is given a mirror: Karpenter's CRDs are the
real ones, the operator is our simulated one, and the other charts are a ConfigMap with the values.
"""

from __future__ import annotations

import functools
import http.server
import json
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.embedded import ControlPlane
from gpuform.engine import Engine, Result
from gpuform.simulator.keys import HOST_DRIVER
from gpuform.toolchain import Toolchain
from infra import versions
from infra.config import load
from infra.model import labels
from infra.model.environment import Environment
from infra.model.machines import MACHINES
from infra.model.pool import Pool
from infra.plan import node_groups, sharing, startup
from tests.incluster.played_gate import PlayedGate
from tests.journey.conftest import HERE, Checkout, make_checkout

CRDS = HERE.root.parent / "shared" / "reference" / "crds" / "karpenter"
VALUES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-values"}
data: {values: {{ .Values | toJson | quote }}}
"""
DEVICE_CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: device.driver == 'gpu.nvidia.com'}}]}
"""
WRAPPER = """\
#!/bin/sh
for word in "$@"; do
  shift
  case $word in
    oci://public.ecr.aws/karpenter/*) word=@CHARTS@/${word##*/}-@KARPENTER@.tgz ;;
    oci://registry.k8s.io/dra-driver-nvidia/charts/*) word=@CHARTS@/${word##*/}-@DRA@.tgz ;;
    https://aws.github.io/eks-charts | https://helm.ngc.nvidia.com/nvidia) word=@URL@ ;;
  esac
  set -- "$@" "$word"
done
exec @HELM@ "$@"
"""


@dataclass
class Mirrored:
    """The toolchain, with a helm that finds the charts of others in a folder and on loopback."""

    tools: Toolchain
    helm: Path

    def path(self, name: str) -> Path:
        return self.helm if name == "helm" else self.tools.path(name)


@dataclass
class World:
    """A checkout, its control plane, and one stack in it."""

    checkout: Checkout
    stack: str
    tools: Mirrored
    machines: dict[str, list[str]]
    said: list[str] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return Engine(self.checkout.paths, self.tools, say=self.said.append, offline=True)

    @property
    def file(self) -> Path:
        return self.checkout.paths.root / f"Pulumi.{self.stack}.yaml"

    @property
    def environment(self) -> Environment:
        return load(self.file)

    def run(self, operation: str) -> Result:
        result: Result = getattr(self.engine, operation)(self.stack, on_event=lambda event: None)
        return result

    def kubectl(self, *args: str, input: str | None = None) -> str:
        kubeconfig = str(self.checkout.paths.kubeconfig)
        command = [str(self.tools.path("kubectl")), "--kubeconfig", kubeconfig, *args]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def nodes(self) -> None:
        """Nodes as node groups and Karpenter make them of the stack file as it is now."""
        for manifest in _nodes(self.environment, self.machines):
            self.kubectl("apply", "-f", "-", input=json.dumps(manifest))

    @contextmanager
    def changed(self, edit: Callable[[dict[str, Any]], Any]) -> Iterator[None]:
        """The stack file with another environment, for as long as the context lasts."""
        before = self.file.read_text()
        content = yaml.safe_load(before)
        edit(content["config"]["gpuform:environment"])
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))
        try:
            yield
        finally:
            self.file.write_text(before)


@contextmanager
def world(folder: Path, stack: str, machines: dict[str, list[str]]) -> Iterator[World]:
    """``machines`` are the nodes that are there, by pool: what node groups and Karpenter would have made."""
    if not CRDS.is_dir():
        pytest.skip("no reference CRDs beside this checkout")
    checkout = make_checkout(folder)
    tools = Toolchain(checkout.paths)
    plane = ControlPlane(checkout.paths, tools)
    with _served(_packaged(folder / "charts", tools)) as url:
        helm = _helm(folder, url, tools)
        made = World(checkout, stack, Mirrored(tools, helm), machines)
        shutil.copy(HERE.root / made.file.name, made.file)
        gate = folder / "gate"
        gate.mkdir()
        try:
            plane.start()
            made.nodes()
            with PlayedGate(made.kubectl, gate).following():
                yield made
        finally:
            plane.stop(delete=True)
    assert not checkout.running()


def _nodes(env: Environment, machines: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    system = node_groups.system_pool(env)
    assert system.machine
    yield _node(env, system, system.machine, "system-0")
    for name, types in machines.items():
        for index, machine in enumerate(types):
            yield _node(env, env.pool(name), machine, f"{name}-{index}")


def _node(env: Environment, pool: Pool, machine_name: str, name: str) -> dict[str, Any]:
    machine = MACHINES[machine_name]
    annotations = {
        labels.KWOK_NODE: "fake",
        labels.SIM_CPU: str(machine.vcpu),
        labels.SIM_MEMORY: f"{machine.memory}Gi",
        labels.SIM_PODS: "110",
    }
    if machine.model:
        annotations |= {labels.SIM_GPU: machine.model.pci, labels.SIM_GPU_COUNT: str(machine.gpus)}
        annotations[HOST_DRIVER] = versions.GPU_DRIVER  # the image has one, so the operator installs none
    own = {
        labels.HOSTNAME: name,
        labels.OS: "linux",
        labels.ARCH: "amd64",
        labels.INSTANCE_TYPE: machine.name,
    }
    metadata = {"name": name, "labels": sharing.pool_labels(env, pool) | own, "annotations": annotations}
    annotations |= startup.promise(env, pool)
    spec = {"taints": [*sharing.pool_taints(env, pool), *startup.startup_taints(pool)]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def _packaged(folder: Path, tools: Toolchain) -> Path:
    """A folder with the charts as archives and an index of them."""
    source = folder / "source"
    crds = {
        file.name: file.read_text().replace("{{", '{{ "{{" }}')
        for file in sorted(CRDS.glob("karpenter*.yaml"))
    }
    _chart(source, "karpenter-crd", versions.KARPENTER, crds)
    _chart(source, "karpenter", versions.KARPENTER, {"values.yaml": VALUES})
    _chart(source, "aws-efa-k8s-device-plugin", versions.EFA_DEVICE_PLUGIN, {"values.yaml": VALUES})
    classes = {"values.yaml": VALUES, "class.yaml": DEVICE_CLASS}
    _chart(source, "dra-driver-nvidia-gpu", versions.DRA_DRIVER, classes)
    operator = source / "gpu-operator"
    shutil.copytree(HERE.root / "charts" / "gpu-operator-sim", operator)
    described = yaml.safe_load((operator / "Chart.yaml").read_text())
    described |= {"name": "gpu-operator", "version": versions.GPU_OPERATOR}
    (operator / "Chart.yaml").write_text(yaml.safe_dump(described))
    helm = str(tools.path("helm"))
    for chart in source.iterdir():
        subprocess.run([helm, "package", str(chart), "-d", str(folder)], check=True, capture_output=True)
    subprocess.run([helm, "repo", "index", str(folder)], check=True, capture_output=True)
    return folder


def _chart(source: Path, name: str, version: str, templates: dict[str, str]) -> None:
    folder = source / name / "templates"
    folder.mkdir(parents=True)
    described = {"apiVersion": "v2", "name": name, "version": version}
    (folder.parent / "Chart.yaml").write_text(yaml.safe_dump(described))
    for file, text in templates.items():
        (folder / file).write_text(text)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def _helm(folder: Path, url: str, tools: Toolchain) -> Path:
    script = WRAPPER
    marks = {"@URL@": url, "@CHARTS@": str(folder / "charts"), "@KARPENTER@": versions.KARPENTER}
    marks["@DRA@"] = versions.DRA_DRIVER
    for mark, value in (marks | {"@HELM@": str(tools.path("helm"))}).items():
        script = script.replace(mark, shlex.quote(value))
    file = folder / "helm"
    file.write_text(script)
    file.chmod(0o755)
    return file
