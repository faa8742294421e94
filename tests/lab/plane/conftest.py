"""A control plane that a test may break, separate from the shared one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from lab.plane import ControlPlane
from lab.plane.layout import Layout
from lab.plane.processes import end, scan
from lab.toolchain import Toolchain


@dataclass
class Own:
    state: Path
    toolchain: Toolchain
    said: list[str] = field(default_factory=list)

    @property
    def paths(self) -> Paths:
        here = Paths.here()
        return Paths(root=here.root, state=self.state, cache=here.cache)

    @property
    def kubeconfig(self) -> Path:
        return self.paths.kubeconfig

    @property
    def layout(self) -> Layout:
        return Layout(self.paths)

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(self.paths, self.toolchain)

    def start(self, port: int | None = None, simulator: bool = False) -> None:
        self.said.clear()
        self.plane.start(port=port, simulator=simulator, progress=self.said.append)

    def pids(self) -> dict[str, int]:
        """Member -> process id; fails if a member runs twice."""
        found = scan(self.layout)
        names = [process.name for process in found]
        assert len(names) == len(set(names)), f"runs twice: {names}"
        return {process.name: process.pid for process in found}

    def kill(self, *members: str) -> None:
        """SIGKILL; returns when the processes are gone."""
        end(self.layout, [process for process in scan(self.layout) if process.name in members], grace=0)

    def kubectl(self, *args: str, input: str | None = None) -> str:
        command = [str(self.toolchain.path("kubectl")), "--kubeconfig", str(self.paths.kubeconfig), *args]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Own]:
    """Started once per module; a test may leave it in any state that a start repairs."""
    cluster = Own(tmp_path_factory.mktemp("own"), toolchain)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.plane.stop(delete=True)
        left = scan(cluster.layout)
    assert not left, f"left running: {left}"


@pytest.fixture
def fresh(tmp_path: Path, toolchain: Toolchain) -> Iterator[Own]:
    cluster = Own(tmp_path / "state", toolchain)
    try:
        yield cluster
    finally:
        cluster.plane.stop(delete=True)
        left = scan(cluster.layout)
    assert not left, f"left running: {left}"
