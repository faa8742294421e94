"""Pull requests for tests: checkouts without history, one change to a stack file, and its comment."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuform.checkout.paths import Paths
from gpuform.clouds import CLOUDS
from gpuform.reports.pull_request import LIMIT, markdown
from gpuform.stack.preview.outcome import Outcome
from gpuform.stack.preview.run import Played, Preview
from lab.rehearse.preview_base import played
from lab.toolchain import Toolchain
from tests.journey.conftest import HERE

OURS = ("infra", "components", "policies", "charts", "toolchain", "Pulumi.yaml")


@dataclass(frozen=True)
class Request:
    name: str
    change: Callable[[str], str]
    blocked: bool = False
    acknowledged: tuple[str, ...] = ()


def replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert text.count(old) == count, f"{old!r} is there {text.count(old)} times"
        return text.replace(old, new)

    return change


def copied(folder: Path, stack: str) -> Path:
    folder.mkdir()
    for name in (*OURS, f"Pulumi.{stack}.yaml"):
        source = HERE.root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    (folder / ".venv").symlink_to(HERE.root / ".venv")
    (folder / "gpuform").symlink_to(HERE.root / "gpuform")
    return folder


def changed(root: Path, stack: str, change: Callable[[str], str]) -> None:
    file = root / f"Pulumi.{stack}.yaml"
    file.write_text(change(file.read_text()))


@contextmanager
def based(folder: Path, stack: str, more: str = "") -> Iterator[Played]:
    """The played base of the requests: the stack with ``more`` appended to its file."""
    root = copied(folder / "checkout", stack)
    changed(root, stack, lambda text: text + more)
    paths = Paths(root, folder / "state", HERE.cache)
    with played(paths, Toolchain(paths), stack, str(root), say=lambda text: None) as made:
        yield made


def reviewed(base: Played, request: Request, folder: Path, stack: str, golden: Path, more: str = "") -> None:
    """Assert that the comment equals the one in ``golden`` and that the request is blocked as declared."""
    root = copied(folder / "head", stack)
    changed(root, stack, lambda text: text + more)
    outcome = judged(base, request, root, stack)
    compared(outcome, golden / f"{request.name}.md")
    assert bool(outcome.reasons) == request.blocked


def judged(base: Played, request: Request, root: Path, stack: str) -> Outcome:
    """The outcome of the request's preview from ``root``, a checkout like the base's."""
    changed(root, stack, request.change)
    paths = Paths(root, root.parent / "state", HERE.cache)
    preview = Preview(
        paths,
        Toolchain(paths),
        stack,
        [cloud.preview for cloud in CLOUDS.values()],
        offline=True,
        acknowledged=request.acknowledged,
        say=lambda text: None,
    )
    return preview.against(base)


def compared(outcome: Outcome, golden: Path) -> None:
    """Assert that the comment equals the reviewed one; GPUFORM_UPDATE_GOLDEN=1 writes it."""
    comment = markdown(outcome)
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        golden.write_text(comment)
    assert comment == golden.read_text()


def short_and_without_paths(folder: Path, requests: Iterable[Request]) -> None:
    for golden in folder.glob("*.md"):
        text = golden.read_text()
        assert len(text) < LIMIT
        assert not re.search(r"(^|[\s`(])/(tmp|root|home|work)/", text), golden.name
    assert {golden.stem for golden in folder.glob("*.md")} == {request.name for request in requests}
