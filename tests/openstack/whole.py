"""A whole stack on OpenStack: the real Magnum API, and the embedded control plane as Magnum's cluster.

Magnum's driver is played, and gives the cluster the embedded API server's address and authority, so a
kubeconfig with a certificate of Magnum works there. Nodes are played as well (``nodes``); readiness gate
and pool keeper are their own programs, run beside the cluster. Third-party charts are stand-ins.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from gpuform.engine.places import write
from gpuform.engine.standins import _launcher
from infra.config import load
from infra.model.environment import Environment
from lab.plane import ControlPlane
from lab.plane.layout import Layout
from lab.rehearse.program import Gate, Keeper
from lab.toolchain import Toolchain
from tests.journey.conftest import HERE, Checkout, make_checkout
from tests.openstack import authority
from tests.openstack.nodes import Machines
from tests.openstack.world import World

STACK = "openstack-dev"
_PROGRAM = """\
from lab.offline.language.program import find_charts_here
from infra.__main__ import main

find_charts_here({finder!r})
main()
"""


@dataclass
class Whole:
    world: World
    checkout: Checkout
    tools: Toolchain

    @property
    def file(self) -> Path:
        return self.checkout.paths.root / f"Pulumi.{STACK}.yaml"

    @property
    def environment(self) -> Environment:
        return load(self.file)

    def gpuform(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.checkout.gpuform(*arguments, code=code)

    @contextmanager
    def by_its_own_kubeconfig(self) -> Iterator[None]:
        """While this lasts, only the kubeconfig with Magnum's certificate reaches the cluster."""
        file = self.checkout.paths.kubeconfig
        aside = file.rename(file.with_suffix(".aside"))
        try:
            yield
        finally:
            aside.rename(file)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """kubectl as the embedded control plane's own administrator."""
        kubeconfig = str(self.checkout.paths.kubeconfig)
        command = [str(self.tools.path("kubectl")), "--kubeconfig", kubeconfig, *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def whole(world: World, folder: Path) -> Iterator[Whole]:
    """The stack's cloud and its future cluster; no resource of the stack exists yet."""
    checkout = make_checkout(folder)
    shutil.copy(HERE.root / f"Pulumi.{STACK}.yaml", checkout.paths.root)
    env = load(checkout.paths.root / f"Pulumi.{STACK}.yaml")
    tools = Toolchain(checkout.paths)
    layout = Layout(checkout.paths)
    authority.lay(layout.pki, env.name)
    plane = ControlPlane(checkout.paths, tools)
    _find_charts_here(checkout, folder)
    try:
        plane.start()
        plane.knows_monitoring()
        _cloud(world, env, checkout, layout.pki)
        gate, keeper = (
            kind(checkout.paths.kubeconfig, _made(folder / kind.__name__)) for kind in (Gate, Keeper)
        )
        made = Whole(world, checkout, tools)
        machines = Machines(world, lambda: made.environment, made.kubectl)
        with ExitStack() as beside:
            for one in (machines.joining(), gate.following(), keeper.following()):
                beside.enter_context(one)
            yield made
    finally:
        plane.stop(delete=True)
    assert not checkout.running()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _cloud(world: World, env: Environment, checkout: Checkout, pki: Path) -> None:
    """The project under the stack's cloud name, with the template that it looks up."""
    declared = env.cluster
    assert declared.kind == "openstack"
    world.cloud = declared.cloud or world.cloud
    world.write_clouds()
    assert isinstance(declared.template, str)
    world.template(declared.template)
    server = yaml.safe_load(checkout.paths.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert urlsplit(server).hostname == "127.0.0.1"
    world.tell(api_address=server, ca={"certificate": str(pki / "ca.crt"), "key": str(pki / "ca.key")})


def _find_charts_here(checkout: Checkout, folder: Path) -> None:
    """Third-party charts cannot be downloaded: the program takes stand-ins for them."""
    finder = folder / "find-chart"
    places = (checkout.paths.root, checkout.paths.cache, folder / "charts")
    write(finder, _launcher("lab.offline.charts", *places), 0o755)
    _made(checkout.paths.root / "program")
    (checkout.paths.root / "program" / "__main__.py").write_text(_PROGRAM.format(finder=str(finder)))
    project = checkout.paths.root / "Pulumi.yaml"
    project.write_text(project.read_text().replace("main: infra/", "main: program/"))
