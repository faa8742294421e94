"""Two commands on one stack at the same time: the second is refused, and the first ends as if alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from gpuform.engine.files import EngineFiles
from gpuform.engine.locks import Owner, parse_owner
from lab.plane import ControlPlane
from lab.toolchain import Toolchain
from tests.engine.conftest import THREE_RESOURCES, aws_checkout
from tests.tiers import nightly_but
from tests.waiting import PATIENCE

pytestmark = pytest.mark.engine

STACK = "aws-dev"
UP, DESTROY, PLAIN = "gpuform up", "gpuform destroy", "pulumi up"
WORDS = {
    UP: ("up", STACK, "--offline"),
    DESTROY: ("destroy", STACK, "--offline", "--yes"),
    PLAIN: ("up", "--yes", "--skip-preview", "--stack", STACK, "--non-interactive", "--color", "never"),
}
PARTS = {UP: [*"1234"], PLAIN: [*"1234"], DESTROY: []}
"""Resources in the state after each command alone."""


@dataclass
class TwoRuns:
    """A checkout with a stack of two components, of which its program has three meanwhile."""

    paths: Paths

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, Toolchain(self.paths), say=lambda text: None, offline=True)

    @property
    def places(self) -> EngineFiles:
        return EngineFiles(self.paths, offline=True)

    def start(self, name: str) -> subprocess.Popen[str]:
        env, program = dict(os.environ), [sys.executable, str(Path(sys.executable).with_name("gpuform"))]
        if name == PLAIN:
            env, program = self.engine.environment(STACK)[0], [str(self.paths.shims / "pulumi")]
        return subprocess.Popen(
            [*program, *WORDS[name]],
            cwd=self.paths.root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def parts(self) -> list[str]:
        found = json.loads(self.places.checkpoint("gpuform", STACK).read_text())["checkpoint"]["latest"]
        return [
            one["urn"].rpartition("::")[2]
            for one in found.get("resources") or ()
            if one["type"].endswith(":Stash")
        ]

    def backend(self) -> dict[str, bytes]:
        """Content of the state, locks included, by path."""
        files = (file for file in self.places.backend.rglob("*") if file.is_file())
        return {str(file): file.read_bytes() for file in files}

    @contextmanager
    def halted(self) -> Iterator[int]:
        """The process that has locked the stack, stopped meanwhile."""
        folder, by = self.places.locks("gpuform", STACK), time.monotonic() + 60 * PATIENCE
        found: list[tuple[Path, Owner | None]] = []
        while not found or found[0][1] is None:  # more often than `until` looks: locks may be brief
            assert time.monotonic() < by, "it has not locked the stack"
            time.sleep(0.01)
            found = [(file, parse_owner(file.read_text())) for file in folder.glob("*.json")]
        ((file, owner),) = found
        assert owner is not None
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            assert file.exists(), "it has ended before it could be stopped"
            yield owner.pid
        finally:
            os.kill(owner.pid, signal.SIGCONT)


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolchain: Toolchain) -> Iterator[TwoRuns]:
    root = aws_checkout(tmp_path / "checkout")
    monkeypatch.delenv("GPUFORM_STATE", raising=False)
    made = TwoRuns(Paths(root, root / ".gpuform", Paths.here().cache))
    plane = ControlPlane(replace(made.paths, stack=STACK), toolchain)
    plane.start(simulator=False)
    made.engine.up(STACK)
    (root / "infra" / "__main__.py").write_text(THREE_RESOURCES + 'pulumi.Stash("4", input="4")\n')
    yield made
    plane.stop()


ORDERS = {f"{first} then {then}": (first, then) for first in WORDS for then in WORDS if first != then}


@pytest.mark.parametrize(("first", "then"), nightly_but(f"{DESTROY} then {UP}", ORDERS))
def test_the_second_is_refused_and_the_first_ends_as_if_alone(two: TwoRuns, first: str, then: str) -> None:
    running = two.start(first)
    with two.halted() as owner:
        # `gpuform destroy` locks the stack itself; for `gpuform up` the engine does.
        assert (owner == running.pid) == (first != UP)
        before = two.backend()
        second = two.start(then)
        said, _ = second.communicate(timeout=60 * PATIENCE)
        assert second.returncode != 0, said
        assert two.backend() == before
        assert running.poll() is None
    assert re.search(r"locked by|is being changed by", said)
    if then == PLAIN:
        assert re.search(rf"created by \S+@\S+ \(pid {owner}\) at 20\d\d-", said)
        assert "pulumi cancel" in said
    else:
        assert re.search(rf"process {owner} of \S+ on host \S+ since 20\d\d-\d\d-\d\d [\d:]+ UTC", said)
        assert f"wait for it to end, or stop it with 'kill -INT {owner}'" in said
    ended, _ = running.communicate(timeout=120 * PATIENCE)
    assert running.returncode == 0, ended
    assert sorted(two.parts()) == PARTS[first]
    assert not list(two.places.locks("gpuform", STACK).glob("*.json"))
