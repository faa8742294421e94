"""A separate checkout for each journey: the real program, engine, control plane and simulator."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import MAIN_STACK, Paths
from gpuform.engine import engine_env
from infra import versions
from lab.offline.charts import Charts
from lab.plane import ControlPlane, stacks_with_planes
from lab.plane.layout import Layout
from lab.plane.processes import scan
from lab.rehearse.program import Gate
from lab.toolchain import Toolchain
from tests.conftest import Plane, kubectl_at
from tests.docs.pages import ROOT, files
from tests.fakes.http_server import serving
from tests.waiting import PATIENCE, until

HERE = Paths.here()


@dataclass
class Checkout:
    """A checkout with an editable stack file, and the command line to run in it."""

    paths: Paths
    variables: Mapping[str, str] = field(default_factory=dict)

    def gpuform(self, *args: str, code: int = 0, patience_s: float = 300) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*args),
            env=self.env,
            cwd=self.paths.root,
            capture_output=True,
            text=True,
            timeout=patience_s * PATIENCE,
        )
        assert done.returncode == code, f"gpuform {' '.join(args)}: {done.stdout}{done.stderr}"
        return done

    def begin(self, *args: str, stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        """The command as the leader of a process group of its own, with a pipe for its output."""
        return subprocess.Popen(
            self.command(*args),
            env=self.env,
            cwd=self.paths.root,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def shell(self, *lines: str) -> str:
        """Both outputs of the lines as bash runs them in the checkout."""
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", "\n".join(lines)],
            cwd=self.paths.root,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900 * PATIENCE,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-c", "from gpuform.cli.main import main; main()", *args]

    @property
    def env(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "GPUFORM_STATE"}
        return inherited | self.variables

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.gpuform("status", "--json").stdout)
        return found

    def offers(self) -> dict[str, list[dict[str, int]]]:
        return offers(self.status())

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return kubectl_at(Toolchain(self.paths), self.paths.kubeconfig, *args, input=input)

    def helm(self, *args: str) -> str:
        command = [str(Toolchain(self.paths).path("helm")), "--kubeconfig", str(self.paths.kubeconfig), *args]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def unsettled(self, pool: str, seconds: float = 20) -> None:
        until(lambda: self.offers()[pool], lambda offers: not any(offers), seconds)

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        file = self.paths.root / "Pulumi.local.yaml"
        content = yaml.safe_load(file.read_text())
        edit(content["config"]["gpuform:environment"])
        file.write_text(yaml.safe_dump(content, sort_keys=False))

    def running(self) -> list[Any]:
        stacks = stacks_with_planes(self.paths)
        return [one for stack in stacks for one in scan(Layout(replace(self.paths, stack=stack)))]


def offers(status: Mapping[str, Any]) -> dict[str, list[dict[str, int]]]:
    """By pool, of each node, from the document of `gpuform status`."""
    return {
        pool["name"]: [
            {key: count for key, count in node["allocatable"].items() if count} for node in pool["nodes"]
        ]
        for pool in status["pools"]
    }


def make_checkout(folder: Path, stack: str = MAIN_STACK) -> Checkout:
    """A checkout with the stack file of ``local``, seen from ``stack``."""
    root = folder / "checkout"
    root.mkdir()
    for name in ("Pulumi.yaml", "Pulumi.local.yaml"):
        (root / name).write_text((HERE.root / name).read_text())
    for name in ("infra", "components", "gpuform", "charts", "policies", "toolchain", ".venv"):
        (root / name).symlink_to(HERE.root / name)
    return Checkout(Paths(root=root, state=root / ".gpuform", cache=HERE.cache, stack=stack))


def cloned(root: Path) -> Checkout:
    """A repository of one commit with the files of this checkout; runs them in its virtual environment."""
    for path in files():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, root / path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(root)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    (root / ".venv").symlink_to(HERE.root / ".venv")
    return Checkout(Paths(root=root, state=root / ".gpuform", cache=HERE.cache), {"PYTHONPATH": str(root)})


def close(checkout: Checkout) -> None:
    for stack in stacks_with_planes(checkout.paths):
        ControlPlane(replace(checkout.paths, stack=stack), Toolchain(checkout.paths)).stop(delete=True)
    assert not checkout.running()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Checkout]:
    checkout = make_checkout(tmp_path)
    try:
        yield checkout
    finally:
        close(checkout)


_PLAYED = ("GPUFORM_CHARTS", "GPUFORM_OFFLINE", "GPUFORM_OFFLINE_KUBECONFIG")


class User:
    """A user of plain Pulumi, with an engine, login and plugins in ``home``, on one stack of a checkout.

    The plugins are the third-party ones of our engine runs and, with ``offline``, the stand-ins for AWS,
    Magnum and charts. Downloads are impossible.
    """

    def __init__(self, paths: Paths, stack: str, home: Path, offline: bool = False) -> None:
        tools = Toolchain(paths)
        ours = engine_env(paths, tools, stack, offline)
        for plugin in Path(ours["PULUMI_HOME"], "plugins").glob("*/pulumi-*"):
            if plugin.name != "pulumi-resource-gpuform":
                installed = home / "pulumi/plugins" / plugin.parent.name / plugin.name
                installed.parent.mkdir(parents=True)
                installed.symlink_to(plugin)
        (home / "bin").mkdir()
        (home / "bin/pulumi").symlink_to(tools.path("pulumi"))
        if offline:
            (home / "bin/aws").symlink_to(Path(ours["PATH"].split(os.pathsep)[0], "aws"))
        self._root, self._stack = paths.root, stack
        self._env = {
            "HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",  # without a virtual environment
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "PULUMI_HOME": str(home / "pulumi"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_CONFIG_PASSPHRASE": "mine",
            "GPUFORM_STATE": str(paths.state),  # the program's own folder links to another checkout
            **{name: value for name, value in ours.items() if name in _PLAYED},
        }
        (home / "state").mkdir()
        self._run("login", f"file://{home}/state")
        self._run("stack", "init", stack)

    def preview(self) -> str:
        return self._run("preview", "--stack", self._stack)

    def up(self) -> str:
        return self._run("up", "--yes", "--skip-preview", "--stack", self._stack)

    def _run(self, *words: str) -> str:
        command = ["pulumi", *words, "--color", "never", "--non-interactive"]
        done = subprocess.run(
            command, env=self._env, cwd=self._root, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


CPU = {"cpu": "16", "memory": "120Gi", "pods": "110"}
ONE_A100 = {**CPU, "gpu": "10de:20f1", "gpu-count": "1"}


def node(name: str, labels: dict[str, str], machine: dict[str, str]) -> dict[str, Any]:
    annotations = {f"simulator.gpuform.io/{key}": value for key, value in machine.items()}
    known = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    labels = {**labels, **known}
    metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake", **annotations}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


@pytest.fixture
def theirs(request: pytest.FixtureRequest, tmp_path: Path, toolchain: Toolchain) -> Iterator[Plane]:
    """With NVIDIA's own operator where a test's parameter says so."""
    paths = Paths(root=HERE.root, state=tmp_path / "theirs", cache=HERE.cache)
    own = Plane(paths, toolchain, ControlPlane(paths, toolchain))
    try:
        own.plane.choose_operator(getattr(request, "param", "") == "real")
        with_kueue = getattr(request, "param", "") == "kueue"
        if with_kueue:
            own.plane.start_with_controllers("kueue")
        else:
            own.plane.start()
        for manifest in (node("theirs-gpu", {"rack": "7"}, ONE_A100), node("theirs-cpu", {"rack": "1"}, CPU)):
            own.kubectl("apply", "-f", "-", input=json.dumps(manifest))
        yield own
    finally:
        own.plane.stop(delete=True)


@pytest.fixture
def repository(theirs: Plane, tmp_path: Path, toolchain: Toolchain) -> Iterator[str]:
    served = tmp_path / "repository"
    program = Layout(theirs.paths).operator
    running = program if program.exists() else None
    made = Charts(HERE.root, HERE.cache, tmp_path / "charts", operator=running)
    chart = made.folder("gpu-operator", versions.GPU_OPERATOR)
    helm = str(toolchain.path("helm"))
    subprocess.run([helm, "package", str(chart), "-d", str(served)], check=True, capture_output=True)
    subprocess.run([helm, "repo", "index", str(served)], check=True, capture_output=True)
    handler = functools.partial(_Quiet, directory=str(served))
    with serving(handler) as at:
        yield f"http://{at}"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def gate(theirs: Plane, tmp_path: Path) -> Iterator[None]:
    """The readiness gate's program, since its pod does not run it here."""
    with Gate(theirs.kubeconfig, tmp_path / "gate").supervisor():
        yield
