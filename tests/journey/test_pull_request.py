"""Pull requests on the stack local, played from base to comment: real engine, control plane and scheduler.

GPUFORM_UPDATE_GOLDEN=1 writes the comments again; review the diff before committing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.stack.preview.run import Played
from tests.journey.conftest import HERE, Checkout
from tests.journey.played_requests import (
    Request,
    based,
    copied,
    replaced,
    reviewed,
    short_and_without_paths,
)

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

GOLDEN = Path(__file__).parent / "pull_requests"
STACK = "Pulumi.local.yaml"


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


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with based(tmp_path_factory.mktemp("base"), "local") as made:
        yield made


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_the_comment_is_what_was_reviewed(base: Played, request_: Request, tmp_path: Path) -> None:
    reviewed(base, request_, tmp_path, "local", GOLDEN)


def test_from_a_commit_through_the_command_line(tmp_path: Path) -> None:
    root = copied(tmp_path / "checkout", "local")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(root)]
    link = root / "gpuform"
    link.unlink()  # the commit has the plugin that Pulumi.yaml names, as a repository has
    shutil.copytree(HERE.root / "gpuform", link, ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".gitignore").write_text(".venv\n.gpuform\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *command], check=True)
    shutil.rmtree(link)
    link.symlink_to(HERE.root / "gpuform")
    (root / STACK).write_text(REQUESTS[1].change((root / STACK).read_text()))
    checkout = Checkout(Paths(root, root / ".gpuform", HERE.cache))
    arguments = ("preview", "local", "--offline", "--base", "HEAD", "--json", "--summary", "comment.md")
    shown = json.loads(checkout.gpuform(*arguments).stdout)
    assert shown["verdict"] == "evicts no pods; 1 to replace, 4 to update"
    assert (root / "comment.md").read_text() == (GOLDEN / "replicas.md").read_text()
    assert not checkout.running()
    assert not (root / ".gpuform" / "preview" / "local").exists()
    assert (
        "error: --base"
        in checkout.gpuform("preview", "local", "--offline", "--base", "nowhere", code=2).stderr
    )


def test_the_comments_are_short_and_name_no_machine() -> None:
    short_and_without_paths(GOLDEN, REQUESTS)
