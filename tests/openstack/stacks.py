"""The cluster half of a stack, run by the real engine against the real Magnum API: no nodes, no Kubernetes.

The program is only the stack's cluster half; the platform half needs an API server. Runs may be killed with
all their children just after a request to Magnum.
"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.paths import Paths
from gpuform.cli.up import run_up
from gpuform.clouds import RECOVERIES
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.stack.recover import Stack, retry_after_cloud
from lab.toolchain import Toolchain
from tests.journey.conftest import make_checkout
from tests.openstack.tenant import TEMPLATE, Tenant
from tests.waiting import until

STACK = "research"
_PROGRAM = """\
import pulumi

from infra.program import openstack
from infra.config import parse

on = openstack.cluster(parse(pulumi.Config("gpuform").require_object("environment")))
pulumi.export("kubeconfig", on.kubeconfig)
"""

T4: dict[str, Any] = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 1}
V100S: dict[str, Any] = {"name": "gpu-v100s", "machine": "g3.xlarge", "nodes": 2}
ENVIRONMENT: dict[str, Any] = {
    "name": "research",
    "cluster": {
        **{"kind": "openstack", "template": TEMPLATE, "version": "1.30", "keypair": "gpu-admins"},
        **{"masters": {"nodes": 1}, "workers": {"nodes": 1}, "timeout_minutes": 5},
    },
    "pools": [T4],
}
"""CERN's two commands."""


@dataclass
class ClusterStack:
    tenant: Tenant
    paths: Paths
    messages: list[str] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        """With the toolchain's provider: the official one or the built one."""
        return Engine(self.paths, Toolchain(self.paths), say=self.messages.append)

    @property
    def file(self) -> Path:
        return self.paths.root / f"Pulumi.{STACK}.yaml"

    @property
    def environment(self) -> dict[str, Any]:
        environment: dict[str, Any] = yaml.safe_load(self.file.read_text())["config"]["gpuform:environment"]
        return environment

    def declare(self, environment: dict[str, Any]) -> None:
        declared = copy.deepcopy(environment)
        declared["cluster"]["cloud"] = self.tenant.cloud
        content = {"config": {"gpuform:environment": declared}}
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    def change(self, edit: Callable[[dict[str, Any]], Any]) -> None:
        environment = self.environment
        edit(environment)
        self.declare(environment)

    def run(self, operation: str) -> Result:
        engine = self.engine
        if operation == "up":
            return run_up(engine, STACK, self.paths, True, self.messages.append)

        def run() -> Result:
            result: Result = getattr(engine, operation)(STACK, on_event=lambda event: None)
            return result

        try:
            return run()
        except EngineFailure as failure:
            return retry_after_cloud(
                Stack(STACK, self.paths, engine, RECOVERIES), failure, run, self.messages.append
            )


def make_cluster_stack(
    tenant: Tenant, folder: Path, environment: dict[str, Any] | None = None
) -> ClusterStack:
    """A checkout in ``folder`` that declares CERN's cluster or ``environment``; not yet run."""
    paths = make_checkout(folder).paths
    project = (paths.root / "Pulumi.yaml").read_text().replace("main: infra/", "main: half/")
    (paths.root / "Pulumi.yaml").write_text(project)
    (paths.root / "half").mkdir()
    (paths.root / "half/__main__.py").write_text(_PROGRAM)
    stack = ClusterStack(tenant, paths)
    stack.declare(environment or ENVIRONMENT)
    return stack


_RUN = f"""
import sys
from pathlib import Path
from gpuform.cli.up import run_up
from gpuform.engine import Engine, EngineFailure
from gpuform.checkout.paths import Paths
from gpuform.clouds import RECOVERIES
from gpuform.stack.recover import Stack, retry_after_cloud
from lab.toolchain import Toolchain

operation, *folders = sys.argv[1:]
paths, stack = Paths(*map(Path, folders)), "{STACK}"
engine = Engine(paths, Toolchain(paths))
try:
    run_up(engine, stack, paths, True, print) if operation == "up" else engine.destroy(stack)
except EngineFailure as failure:
    if operation == "up":
        raise
    here = Stack(stack, paths, engine, RECOVERIES)
    retry_after_cloud(here, failure, lambda: engine.destroy(stack), print)
"""


def count_requests(tenant: Tenant, path: str, method: str = "POST") -> int:
    """Requests that Magnum accepted, by the end of their path."""
    return sum(
        request.method == method and request.path.rstrip("/").endswith(path) and request.status < 300
        for request in tenant.requests(changes=True)
    )


def kill_when(stack: ClusterStack, condition: Callable[[], bool], operation: str = "up") -> bool:
    """Run the operation and kill all of it at the given moment; return whether it was still running then."""
    paths = stack.paths
    command = [sys.executable, "-c", _RUN, operation, str(paths.root), str(paths.state), str(paths.cache)]
    with (stack.paths.root / "killed.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=paths.root, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def log_tail() -> str:
        return (stack.paths.root / "killed.log").read_text()[-2000:]

    def read() -> bool:
        is_met = condition()
        assert is_met or process.poll() is None, log_tail()
        return is_met

    try:
        until(read, seconds=60, what=log_tail)
        return process.poll() is None
    finally:
        with suppress(ProcessLookupError):  # it has ended with all its children
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
