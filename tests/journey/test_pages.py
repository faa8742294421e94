"""Executes README and the tutorials in a fresh checkout: each command, and the output that the page shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from tests.docs.pages import README, ROOT, TUTORIALS, commands, files, shown
from tests.journey.conftest import HERE, Checkout, close
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.engine]


def cloned(root: Path) -> Checkout:
    """A repository of one commit with the files of this checkout, and its virtual environment."""
    for path in files():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, root / path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(root)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    (root / ".venv").symlink_to(HERE.root / ".venv")
    return Checkout(Paths(root=root, state=root / ".gpuform", cache=HERE.cache))


def steady(text: str) -> str:
    """``text`` without what differs between runs: widths, durations, ports, random names."""
    text = re.sub(r"\d+(\.\d+)? s\b", "N s", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:N", text)
    return re.sub(r"[ \t]+", " ", text)


@pytest.mark.parametrize(
    "page",
    [README, *(pytest.param(page, marks=pytest.mark.nightly) for page in TUTORIALS)],
    ids=lambda page: page.stem,
)
def test_every_command_works_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    checkout = cloned(tmp_path / "checkout")
    try:
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", "\n".join(commands(page))],
            cwd=checkout.paths.root,
            env=checkout.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900 * PATIENCE,
        )
        assert done.returncode == 0, done.stdout
    finally:
        close(checkout)
    output = steady(done.stdout)
    assert [line for line in shown(page) if steady(line).strip() not in output] == [], output
