"""A whole stack on OpenStack: the real Magnum API, and the embedded control plane as Magnum's cluster.

Magnum's driver is played, and gives the cluster the embedded API server's address and authority, so a
kubeconfig with a certificate of Magnum works there. Machines of Magnum's groups are played as well: one
simulated node for each node that the driver reports, which joins with only the label that Magnum's own
kubelets set, and is deleted when its group shrinks. Readiness gate and pool keeper are their own programs,
run beside the cluster. Third-party charts are stand-ins.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpuform.engine.files import write
from gpuform.engine.standins import _launch_script
from infra.config import load
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import magnum
from infra.plan.nodes import magnum_nodes
from lab.plane import ControlPlane
from lab.plane.layout import Layout
from lab.rehearse.program import Gate, Keeper
from lab.toolchain import Toolchain
from tests.build.aws_stacks import own
from tests.journey.conftest import HERE, Checkout, make_checkout
from tests.openstack import authority
from tests.openstack.tenant import Tenant

STACK = "openstack-dev"
_PROGRAM = """\
from lab.offline.language.runner import use_local_charts
from infra.__main__ import main

use_local_charts({finder!r})
main()
"""


@dataclass
class FullStack:
    tenant: Tenant
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
        renamed = file.rename(file.with_suffix(".aside"))
        try:
            yield
        finally:
            renamed.rename(file)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """kubectl as the embedded control plane's own administrator."""
        kubeconfig = str(self.checkout.paths.kubeconfig)
        command = [str(self.tools.path("kubectl")), "--kubeconfig", kubeconfig, *arguments]
        result = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        return result.stdout


@contextmanager
def full_stack(tenant: Tenant, folder: Path) -> Iterator[FullStack]:
    """The stack's cloud and its future cluster; no resource of the stack exists yet."""
    checkout = make_checkout(folder)
    file = checkout.paths.root / f"Pulumi.{STACK}.yaml"
    file.write_text(own((HERE.root / file.name).read_text()))
    env = load(file)
    tools = Toolchain(checkout.paths)
    layout = Layout(checkout.paths)
    authority.write_certificates(layout.pki, env.name, identified=True)
    plane = ControlPlane(checkout.paths, tools)
    _use_local_charts(checkout, folder)
    try:
        plane.start()
        plane.define_monitoring_kinds()
        _cloud(tenant, env, checkout, layout.pki)
        gate, keeper = (
            kind(checkout.paths.kubeconfig, _make_folder(folder / kind.__name__)) for kind in (Gate, Keeper)
        )
        stack = FullStack(tenant, checkout, tools)
        machines = SimulatedNodes(tenant, lambda: stack.environment, stack.kubectl)
        with ExitStack() as threads:
            for thread in (machines.follow_driver(), gate.supervisor(), keeper.supervisor()):
                threads.enter_context(thread)
            yield stack
    finally:
        plane.stop(delete=True)
    assert not checkout.running()


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _cloud(tenant: Tenant, env: Environment, checkout: Checkout, pki: Path) -> None:
    """The project under the stack's cloud name, with the template that it looks up."""
    declared = env.cluster
    assert declared.kind == "openstack"
    tenant.cloud = declared.cloud or tenant.cloud
    tenant.write_clouds()
    assert isinstance(declared.template, str)
    tenant.template(declared.template)
    server = yaml.safe_load(checkout.paths.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert urlsplit(server).hostname == "127.0.0.1"
    tenant.instruct(api_address=server, ca={"certificate": str(pki / "ca.crt"), "key": str(pki / "ca.key")})


def _use_local_charts(checkout: Checkout, folder: Path) -> None:
    """Third-party charts cannot be downloaded: the program takes stand-ins for them."""
    finder = folder / "find-chart"
    folders = (checkout.paths.root, checkout.paths.cache, folder / "charts")
    write(finder, _launch_script("lab.offline.charts", *folders), 0o755)
    _make_folder(checkout.paths.root / "program")
    (checkout.paths.root / "program" / "__main__.py").write_text(_PROGRAM.format(finder=str(finder)))
    project = checkout.paths.root / "Pulumi.yaml"
    project.write_text(project.read_text().replace("main: infra/", "main: program/"))


EVERY_S = 0.5
_SCAN = 10  # polls between two scans of the autoscaler, which scans every 10 s


def _with_name(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    metadata = manifest["metadata"]
    node_labels = {**metadata["labels"], labels.HOSTNAME: name}
    return {**manifest, "metadata": {**metadata, "name": name, "labels": node_labels}}


class SimulatedNodes:
    """The nodes of one cluster, synchronized with the driver by a thread."""

    def __init__(
        self, tenant: Tenant, environment: Callable[[], Environment], kubectl: Callable[..., str]
    ) -> None:
        """``environment`` describes the groups' machines; called at each poll, since pools come and go."""
        self._world, self._environment, self._kubectl = tenant, environment, kubectl
        self._joined: set[str] = set()
        self._over = threading.Event()
        self.trouble = ""

    def look(self) -> None:
        env = self._environment()
        label = magnum.GROUP_LABELS[magnum.cluster_of(env).driver]
        of_group = {node["metadata"]["labels"][label]: node for node in magnum_nodes(env)}
        wanted: dict[str, Any] = {}
        for folder in (self._world.services.played / "nodes").glob("*"):
            if folder.name in self._own():
                for group, nodes in self._world.nodes(folder.name).items():
                    if group in of_group:
                        names = [node["name"] for node in nodes]
                        wanted |= {name: _with_name(of_group[group], name) for name in names}
        new = [manifest for name, manifest in wanted.items() if name not in self._joined]
        removed = sorted(self._joined - wanted.keys())
        if new:
            manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": new})
            self._kubectl("apply", "-f", "-", input=manifests)
        if removed:
            self._kubectl("delete", "nodes", "--ignore-not-found", *removed)
        self._joined = set(wanted)

    def scale_up(self) -> None:
        """Add one node to each elastic group below its maximum while a pod is unschedulable.

        Simulates cluster-autoscaler, reduced to its Magnum request: a resize of the group
        (cloudprovider/magnum/magnum_manager_impl.go).
        """
        query = "-o=jsonpath={.items[*].status.conditions[?(@.reason=='Unschedulable')].reason}"
        if not self._kubectl("get", "pods", "-A", "--field-selector=status.phase=Pending", query).strip():
            return
        magnum = self._world.magnum()
        for cluster in self._world.clusters():
            for pool in self._environment().pools:
                names = {group.name for group in magnum.nodegroups.list(cluster.uuid)}
                if pool.elastic and pool.name in names and cluster.status.endswith("_COMPLETE"):
                    group = magnum.nodegroups.get(cluster.uuid, pool.name)
                    if group.node_count < group.max_node_count:
                        magnum.clusters.resize(cluster.uuid, group.node_count + 1, nodegroup=group.uuid)

    def _own(self) -> set[str]:
        return {cluster.uuid for cluster in self._world.clusters()}

    @contextmanager
    def follow_driver(self) -> Iterator[SimulatedNodes]:
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
        assert not self.trouble, self.trouble

    def _follow(self) -> None:
        looks = 0
        while not self._over.wait(EVERY_S):
            looks += 1
            try:
                self.look()
                if looks % _SCAN == 0:
                    self.scale_up()
            except Exception as error:  # reported at the end, if it still persists then
                self.trouble = f"{type(error).__name__}: {error}"
            else:
                self.trouble = ""
