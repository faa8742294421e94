"""A control plane that a test may break, separate from the shared one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from gpuform.checkout.paths import MAIN_STACK, Paths
from lab.plane import ControlPlane
from lab.plane.layout import Layout
from lab.plane.processes import end_processes, scan
from lab.toolchain import Toolchain
from tests.conftest import kubectl_at


@dataclass
class OwnControlPlane:
    state: Path
    toolchain: Toolchain
    messages: list[str] = field(default_factory=list)
    stack: str = MAIN_STACK

    @property
    def paths(self) -> Paths:
        here = Paths.here()
        return Paths(root=here.root, state=self.state, cache=here.cache, stack=self.stack)

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
        self.messages.clear()
        self.plane.start(port=port, simulator=simulator, progress=self.messages.append)

    def pids(self) -> dict[str, int]:
        """Member -> process id; fails if a member runs twice."""
        result = scan(self.layout)
        names = [process.name for process in result]
        assert len(names) == len(set(names)), f"runs twice: {names}"
        return {process.name: process.pid for process in result}

    def kill(self, *members: str) -> None:
        """SIGKILL; returns when the processes are gone."""
        end_processes(
            self.layout, [process for process in scan(self.layout) if process.name in members], grace=0
        )

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return kubectl_at(self.toolchain, self.kubeconfig, *args, input=input)


_Own = TypeVar("_Own", bound=OwnControlPlane)


@contextmanager
def removed(cluster: _Own) -> Iterator[_Own]:
    """The same, removed at the end; nothing of it may run on."""
    try:
        yield cluster
    finally:
        cluster.plane.stop(delete=True)
        left = scan(cluster.layout)
    assert not left, f"left running: {left}"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[OwnControlPlane]:
    """Started once per module; a test may leave it in any state that a start repairs."""
    with removed(OwnControlPlane(tmp_path_factory.mktemp("own"), toolchain)) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def fresh(tmp_path: Path, toolchain: Toolchain) -> Iterator[OwnControlPlane]:
    with removed(OwnControlPlane(tmp_path / "state", toolchain)) as cluster:
        yield cluster
