"""Pull requests on the stack local, played from base to comment: real engine, control plane and scheduler.

GPUFORM_UPDATE_GOLDEN=1 writes the comments again; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuform.paths import Paths
from gpuform.preview.run import Played, Preview, played
from gpuform.preview.summary import LIMIT, markdown
from gpuform.toolchain import Toolchain
from tests.journey.conftest import HERE, Checkout

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent / "pull_requests"
OURS = ("infra", "components", "policies", "charts", "toolchain", "Pulumi.yaml", "Pulumi.local.yaml")
STACK = "Pulumi.local.yaml"


@dataclass(frozen=True)
class Request:
    """A pull request: what it changes in the stack file, and whether it may be merged."""

    name: str
    change: Callable[[str], str]
    blocked: bool = False


def replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert text.count(old) == count, f"{old!r} is there {text.count(old)} times"
        return text.replace(old, new)

    return change


def relaid_out(text: str) -> str:
    text = replaced("{3g.20gb: 1, 2g.10gb: 2}", "{3g.20gb: 2}")(text)
    return replaced("slice: 2g.10gb", "slice: 3g.20gb", count=2)(text)


REQUESTS = (
    Request("no-change", lambda text: text.replace("# CERN's", "# their")),
    Request("replicas", replaced("kind: time_slicing, replicas: 4}", "kind: time_slicing, replicas: 8}")),
    Request("mig-relayout", relaid_out),
    Request("driver-bump", replaced("      - {name: v100, machine: g1.4xlarge, nodes: 1}\n", "")),
    Request(
        "over-budget",
        lambda text: text + "\n    cost: {budget_usd_per_month: 500, prices: {g2.5xlarge: 0.9}}\n",
        blocked=True,
    ),
    Request("broken-value", replaced("replicas: 3,", "replicas: 1,"), blocked=True),
    Request("broken-yaml", replaced("pools:\n", "pools: [\n"), blocked=True),
)


def copied(folder: Path) -> Path:
    """A checkout without history."""
    folder.mkdir()
    for name in OURS:
        source = HERE.root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    (folder / ".venv").symlink_to(HERE.root / ".venv")
    (folder / "gpuform").symlink_to(HERE.root / "gpuform")
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("base")
    root = copied(folder / "checkout")
    paths = Paths(root, folder / "state", HERE.cache)
    with played(paths, Toolchain(paths), "local", str(root), say=lambda text: None) as made:
        yield made


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_the_comment_is_what_was_reviewed(base: Played, request_: Request, tmp_path: Path) -> None:
    root = copied(tmp_path / "head")
    text = (root / STACK).read_text()
    (root / STACK).write_text(request_.change(text))
    paths = Paths(root, tmp_path / "state", HERE.cache)
    preview = Preview(paths, Toolchain(paths), "local", offline=True, say=lambda text: None)
    outcome = preview.against(base)
    comment = markdown(outcome)
    assert bool(outcome.reasons) == request_.blocked
    golden = GOLDEN / f"{request_.name}.md"
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        golden.write_text(comment)
    assert comment == golden.read_text()


def test_from_a_commit_through_the_command_line(tmp_path: Path) -> None:
    root = copied(tmp_path / "checkout")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(root)]
    (root / ".gitignore").write_text(".venv\n.gpuform\ngpuform\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *command], check=True)
    (root / STACK).write_text(REQUESTS[1].change((root / STACK).read_text()))
    checkout = Checkout(Paths(root, root / ".gpuform", HERE.cache))
    arguments = ("preview", "local", "--offline", "--base", "HEAD", "--json", "--summary", "comment.md")
    shown = json.loads(checkout.gpuform(*arguments).stdout)
    assert shown["verdict"] == "evicts nobody; 1 to replace, 3 to update"
    assert (root / "comment.md").read_text() == (GOLDEN / "replicas.md").read_text()
    assert not checkout.running()
    assert not (root / ".gpuform" / "preview" / "local").exists()
    assert (
        "error: --base"
        in checkout.gpuform("preview", "local", "--offline", "--base", "nowhere", code=2).stderr
    )


def test_the_comments_are_short_and_name_no_machine() -> None:
    for golden in GOLDEN.glob("*.md"):
        text = golden.read_text()
        assert len(text) < LIMIT
        assert not re.search(r"(^|[\s`(])/(tmp|root|home|work)/", text), golden.name
    assert {golden.stem for golden in GOLDEN.glob("*.md")} == {request.name for request in REQUESTS}
