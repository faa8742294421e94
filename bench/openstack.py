"""Import, previews and ``pulumi up`` of openstack-dev offline, beside a flat program and OpenStack's own CLI.

    python -m bench.openstack [ROUNDS]

The peer (`bench/flat.py`) runs in the same run, on such a control plane with the same stand-ins. Previews of
stacks that do not exist yet are medians of ROUNDS (5) in turns, so that other load affects all alike: the
OpenStack part alone (guards, cluster, groups), the whole stack, the peer. The aim for ours is 3 s. The CLI
only starts and prints its help, because its commands need a cloud: the time that ``openstack coe cluster
create`` takes before its first request. It is left out if the tests' services are not installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import yaml

from bench.flat import COLUMNS, flat_engine, import_seconds, lines, measure_operations, peak_memory
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from lab.toolchain.store import Store
from tests.journey.aws_world import World, world
from tests.journey.conftest import HERE, make_checkout

STACK = "openstack-dev"
AIM_S = 3.0
CLI = "from openstackclient.shell import main; main()"
SDKS = "from pulumi_openstack import containerinfra; from pulumi_kubernetes.helm.v3 import Release"
PREVIEW_COLUMNS = ("resources", "seconds", "CPU", "MiB")
HALF_PROGRAM = """\
import pulumi

from infra.program import openstack
from infra.config import parse

on = openstack.cluster(parse(pulumi.Config("gpuform").require_object("environment")))
pulumi.export("kubeconfig", pulumi.Output.secret(on.kubeconfig))
"""


def run_in_turns(
    runs: dict[str, Callable[[], Mapping[str, float]]], rounds: int
) -> dict[str, dict[str, float]]:
    """The medians of each; one run of each goes first, to warm bytecode and page cache."""
    for run in runs.values():
        run()
    results = [{name: run() for name, run in runs.items()} for _ in range(rounds)]
    return {
        name: {key: statistics.median(result[name][key] for result in results) for key in results[0][name]}
        for name in runs
    }


def measure_preview(engine: Engine) -> dict[str, float]:
    """Seconds, CPU seconds, MiB of the engine and its child processes, and resources of one preview."""
    began = os.times()
    with peak_memory() as memory:
        result = engine.preview(STACK, on_event=lambda event: None)
    cpu = sum(os.times()[2:4]) - sum(began[2:4])
    return {
        "resources": sum(result.changes.values()),
        "seconds": result.duration_s,
        "CPU": cpu,
        "MiB": memory[0],
    }


def openstack_half(stack_world: World, folder: Path) -> Engine:
    """An engine for the OpenStack part alone: guards, cluster and groups, without the platform."""
    checkout = make_checkout(folder)
    root = checkout.paths.root
    (root / "half").mkdir()
    (root / "half" / "__main__.py").write_text(HALF_PROGRAM)
    project = (root / "Pulumi.yaml").read_text()
    (root / "Pulumi.yaml").write_text(project.replace("main: infra/", "main: half/"))
    (root / stack_world.file.name).symlink_to(stack_world.file)
    checkout.paths.state.mkdir()
    checkout.paths.kubeconfig.symlink_to(stack_world.checkout.paths.kubeconfig)
    return Engine(checkout.paths, stack_world.tools, say=lambda line: None, offline=True)


def folder_of(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def stack(rounds: int, folder: Path) -> Iterator[str]:
    """Lines on the stack, its OpenStack part and its peer.

    Each is up on a control plane of its own: objects of a Magnum cluster are not deleted one by one, but the
    embedded control plane stays with all its objects, and they cannot be created there twice. Without
    workloads: the flat program labels no nodes, so its pods would wait for ever.
    """
    file = yaml.safe_load((HERE.root / f"Pulumi.{STACK}.yaml").read_text())
    declared = file["config"]["gpuform:environment"] | {"workloads": []}
    with world(folder_of(folder, "first"), STACK, declared) as once:
        once.run("up")  # shows what the flat program must declare
        state = once.engine.export(STACK)
    with (
        world(folder_of(folder, "ours"), STACK, declared) as own_world,
        world(folder_of(folder, "theirs"), STACK, declared) as peer_world,
    ):
        peer = flat_engine(peer_world, folder, state, "openstack", {"cloud": "cern"})
        alone = openstack_half(own_world, folder_of(folder, "half"))
        engines = {"OpenStack half": alone, "whole stack": own_world.engine, "flat": peer}
        runs = {name: partial(measure_preview, engine) for name, engine in engines.items()}
        yield f"medians of {rounds} in turns     " + " ".join(f"{key:>9}" for key in PREVIEW_COLUMNS)
        for name, row in run_in_turns(runs, rounds).items():
            yield f"preview, {name:17}" + " ".join(f"{row[key]:9.1f}" for key in PREVIEW_COLUMNS)
        second, first = measure_operations(peer, STACK), measure_operations(own_world.engine, STACK)
        unchanged = run_in_turns({"": runs["whole stack"]}, rounds)[""]
        yield "without changes, whole    " + " ".join(f"{unchanged[key]:9.1f}" for key in PREVIEW_COLUMNS)
        yield f"the aim of a preview is {AIM_S:.0f} s"
        yield "              resources " + " ".join(f"{column:>9}" for column in COLUMNS)
        yield from lines("once", first, second)


def cli(rounds: int) -> str:
    """Start-up time of OpenStack's own command, in the environment of the tests' services."""
    interpreters = sorted(Store(Paths.here().cache).tools.glob("openstack-services-*/venv/bin/python"))
    if not interpreters:
        return "openstack coe cluster create: not measured, the tests' services are not installed"
    command = [str(interpreters[-1]), "-c", CLI, "coe", "cluster", "create", "--help"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OS_"))}

    def seconds() -> float:
        began = time.monotonic()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    seconds_taken = run_in_turns({"": lambda: {"seconds": seconds()}}, rounds)[""]["seconds"]
    return f"openstack coe cluster create --help: {seconds_taken:.1f} s, before anything is asked of a cloud"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    program, sdks = import_seconds("import infra.__main__, infra.program.openstack"), import_seconds(SDKS)
    print(f"import: {program:.2f} s; what it uses of the SDKs alone: {sdks:.2f} s ({program / sdks:.2f}x)")
    print(cli(rounds))
    with tempfile.TemporaryDirectory() as folder:
        for line in stack(rounds, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
