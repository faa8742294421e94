"""Pull requests played from base to comment: real engine, control plane and scheduler; clouds are offline.

A checkout without history has one change of a stack file. GPUFORM_UPDATE_GOLDEN=1 writes the comments again;
review the diff before committing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.clouds import CLOUDS
from gpuform.reports.pull_request import LIMIT, render_comment
from gpuform.stack.preview.run import Preview, SimulatedBase
from lab.rehearse.plane import preview_base
from lab.toolchain import Toolchain
from tests.journey.conftest import HERE, Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

OURS = ("infra", "components", "policies", "charts", "toolchain", "Pulumi.yaml")


@dataclass(frozen=True)
class Request:
    name: str
    change: Callable[[str], str]
    blocked: bool = False


@dataclass(frozen=True)
class Stack:
    """A stack with its requests; ``more`` is appended to its file, ``golden`` has the comments."""

    requests: tuple[Request, ...]
    golden: Path
    more: str = ""
    marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.nightly,)


def replaced(old: str, new: str, count: int = 1) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert text.count(old) == count, f"{old!r} is there {text.count(old)} times"
        return text.replace(old, new)

    return change


def relaid_out(text: str) -> str:
    text = replaced("{3g.20gb: 1, 2g.10gb: 2}", "{2g.10gb: 3}")(text)
    return replaced("slice: 3g.20gb", "slice: 2g.10gb")(text)


def resized(text: str) -> str:
    """One T4 node fewer, a higher maximum for the runners, and another flavor for the V100S."""
    text = replaced("machine: g2.5xlarge\n        nodes: 2", "machine: g2.5xlarge\n        nodes: 1")(text)
    text = replaced("max: {nodes: 3}", "max: {nodes: 6}")(text)
    larger = "{name: gpu-v100s, machine: g3.4xlarge, nodes: 1, openstack: {allow_replace: true}}"
    return replaced("{name: gpu-v100s, machine: g3.xlarge, nodes: 1}", larger)(text)


MORE_SHARES = replaced("kind: time_slicing, replicas: 4}", "kind: time_slicing, replicas: 8}")
P5 = """\
      - name: h100
        machine: p5.48xlarge
        elastic: {max: {nvidia.com/gpu: 16}}
        class: training
        taints: [{key: work, value: training}]

    workloads:
"""
LABELLED = "      keypair: gpu-admins\n      labels: {boot_volume_size: 80}\n"
GOLDEN = Path(__file__).parent
STACKS = {
    "local": Stack(
        (
            Request("no-change", lambda text: text.replace("# CERN's", "# their")),
            Request("replicas", MORE_SHARES),
            Request("mig-relayout", relaid_out),
            Request("driver-bump", replaced("      - {name: v100, machine: g1.4xlarge, nodes: 1}\n", "")),
            Request("over-budget", replaced("cost: {", "cost: {budget_usd_per_month: 500, "), blocked=True),
            Request("broken-value", replaced("replicas: 3,", "replicas: 1,"), blocked=True),
            Request("broken-yaml", replaced("pools:\n", "pools: [\n"), blocked=True),
        ),
        GOLDEN / "pull_requests",
    ),
    "aws-dev": Stack(
        (
            Request("p5-pool", replaced("    workloads:\n", P5), blocked=True),
            Request("another-network", replaced("cidr: 10.20.0.0/16", "cidr: 10.30.0.0/16"), blocked=True),
            Request("ami-pin", replaced("al2023@v20261012", "al2023@v20261101", count=2)),
            Request("replicas", replaced("time_slicing, replicas: 3,", "time_slicing, replicas: 4,")),
        ),
        GOLDEN / "pull_requests_aws",
        "\n    cost: {budget_usd_per_month: 20000}\n",
    ),
    "openstack-dev": Stack(
        (
            Request("groups-resized", resized),
            Request("cluster-label", replaced("      keypair: gpu-admins\n", LABELLED), blocked=True),
        ),
        GOLDEN / "pull_requests_openstack",
        "\n    cost: {prices: {g2.5xlarge: 0.9, g4.p1.40g: 2.5, m2.medium: 0.1}}\n",
        marks=(),
    ),
}


def copied(folder: Path, stack: str) -> Path:
    """A checkout in which the stack's file has its own ``more``."""
    folder.mkdir()
    for name in (*OURS, f"Pulumi.{stack}.yaml"):
        source = HERE.root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    for name in (".venv", "gpuform"):
        (folder / name).symlink_to(HERE.root / name)
    changed(folder, stack, lambda text: text + STACKS[stack].more)
    return folder


def changed(root: Path, stack: str, change: Callable[[str], str]) -> None:
    file = root / f"Pulumi.{stack}.yaml"
    file.write_text(change(file.read_text()))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SimulatedBase]]:
    """The base of a stack's requests, with the nodes that its cloud would have made; made once per stack."""
    with ExitStack() as made:

        @cache
        def base(stack: str) -> SimulatedBase:
            folder = tmp_path_factory.mktemp("base")
            root = copied(folder / "checkout", stack)
            paths = Paths(root, folder / "state", HERE.cache)
            return made.enter_context(
                preview_base(paths, Toolchain(paths), stack, str(root), say=lambda text: None)
            )

        yield base


@pytest.fixture
def base(bases: Callable[[str], SimulatedBase], stack: str) -> SimulatedBase:
    return bases(stack)


WORLDS: dict[str, tuple[dict[str, int], dict[str, set[str]]]] = {
    "aws-dev": ({"system": 2, "g4dn-shared": 2}, {"g4dn-shared": {"examples/Deployment/tensorflow"}}),
    "openstack-dev": (
        {"default-worker": 1, "gpu-a100": 1, "gpu-ci": 2, "gpu-t4": 2, "gpu-v100s": 1},
        {"gpu-ci": {"ci/Deployment/runner"}},
    ),
}
"""Nodes of each pool, of which elastic ones have grown for the workloads, and owners of the pods on some."""


@pytest.mark.parametrize("stack", [pytest.param(name, id=name, marks=STACKS[name].marks) for name in WORLDS])
def test_the_base_is_read_live(base: SimulatedBase, stack: str) -> None:
    nodes, owners = WORLDS[stack]
    assert base.snapshot.live
    assert {pool: len(names) for pool, names in base.snapshot.nodes.items()} == nodes
    for pool, expected in owners.items():
        pods = base.snapshot.pods_on(pool)
        assert {f"{pod.namespace}/{pod.owner}" for pod in pods} == expected
        assert {pod.node for pod in pods} == set(base.snapshot.nodes[pool])


@pytest.mark.parametrize(
    ("stack", "request_"),
    [
        pytest.param(name, request, id=f"{name}-{request.name}", marks=stack.marks)
        for name, stack in STACKS.items()
        for request in stack.requests
    ],
)
def test_the_comment_is_what_was_reviewed(
    base: SimulatedBase, stack: str, request_: Request, tmp_path: Path
) -> None:
    root = copied(tmp_path / "head", stack)
    changed(root, stack, request_.change)
    paths = Paths(root, tmp_path / "state", HERE.cache)
    clouds = [cloud.preview for cloud in CLOUDS.values()]
    preview = Preview(
        paths,
        Toolchain(paths),
        stack,
        clouds,
        offline=True,
        say=lambda text: None,
        simulate=lambda *asked: nullcontext(base),
    )
    outcome = preview.run()
    golden, comment = STACKS[stack].golden / f"{request_.name}.md", render_comment(outcome)
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        golden.write_text(comment)
    assert comment == golden.read_text()
    assert bool(outcome.reasons) == request_.blocked


@pytest.mark.nightly
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
    changed(root, "local", MORE_SHARES)
    checkout = Checkout(Paths(root, root / ".gpuform", HERE.cache))
    arguments = ("preview", "local", "--offline", "--base", "HEAD", "--json", "--summary", "comment.md")
    shown: dict[str, Any] = json.loads(checkout.gpuform(*arguments).stdout)
    assert shown["verdict"] == "evicts no pods; 1 to replace, 3 to update"
    assert (root / "comment.md").read_text() == (GOLDEN / "pull_requests/replicas.md").read_text()
    assert not checkout.running()
    assert not (root / ".gpuform" / "preview" / "local").exists()
    nowhere = checkout.gpuform("preview", "local", "--offline", "--base", "nowhere", code=2)
    assert "error: --base" in nowhere.stderr


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_the_comments_are_short_and_name_no_machine(stack: Stack) -> None:
    for golden in stack.golden.glob("*.md"):
        text = golden.read_text()
        assert len(text) < LIMIT
        assert not re.search(r"(^|[\s`(])/(tmp|root|home|work)/", text), golden.name
    assert {golden.stem for golden in stack.golden.glob("*.md")} == {one.name for one in stack.requests}
