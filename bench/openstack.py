"""Import, previews and ``pulumi up`` of openstack-dev offline, beside a flat program and OpenStack's own CLI.

    python -m bench.openstack [ROUNDS]

The peer is made in the same run, on the same control plane with the same stand-ins: `bench/flat.py`. Previews
are medians of ROUNDS (5) in turns, so that what else the machine does meets both alike; the aim for ours is
3 s. The CLI only starts and prints its help, for its commands need a cloud: what ``openstack coe cluster
create`` takes before it asks for anything. It is left out where the tests' services are not installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from bench.flat import COLUMNS, flat, imported, lines, measured
from gpuform.engine import Engine
from gpuform.paths import Paths
from gpuform.toolchain.store import Store
from tests.journey.aws_world import world
from tests.journey.conftest import HERE

STACK = "openstack-dev"
AIM_S = 3.0
CLI = "from openstackclient.shell import main; main()"
SDKS = "from pulumi_openstack import containerinfra; from pulumi_kubernetes.helm.v3 import Release"


def in_turns(rounds: int, *runs: Callable[[], float]) -> list[float]:
    """The median of each."""
    found = [[run() for run in runs] for _ in range(rounds)]
    return [statistics.median(taken) for taken in zip(*found, strict=True)]


def preview(engine: Engine) -> float:
    """Seconds of a preview."""
    seconds: float = engine.preview(STACK, on_event=lambda event: None).duration_s
    return seconds


def stack(rounds: int, folder: Path) -> Iterator[str]:
    """Lines on the stack and its peer; both are made twice, so that neither is the first.

    Without workloads: the flat program labels no nodes, so its pods would wait for ever.
    """
    declared = yaml.safe_load((HERE.root / f"Pulumi.{STACK}.yaml").read_text())
    with world(folder, STACK, declared["config"]["gpuform:environment"] | {"workloads": []}) as ours:
        ours.run("up")
        peer = flat(ours, folder, ours.engine.export(STACK), "openstack", {"cloud": "cern"})
        ours.run("destroy")
        second = measured(peer, STACK)
        peer.destroy(STACK, on_event=lambda event: None)
        first = measured(ours.engine, STACK)
        yield "              resources " + " ".join(f"{column:>9}" for column in COLUMNS)
        yield from lines("once", first, second)
        no_op, _ = in_turns(rounds, lambda: preview(ours.engine), lambda: preview(peer))
        ours.run("destroy")
        whole, others = in_turns(rounds, lambda: preview(ours.engine), lambda: preview(peer))
    yield f"median of {rounds}: preview of a stack that is not there {whole:.1f} s, the peer's {others:.1f} s"
    yield f"({whole / others:.2f}x); preview without changes {no_op:.1f} s; the aim is {AIM_S:.0f} s"


def cli(rounds: int) -> str:
    """What OpenStack's own command takes to start, in the environment of the tests' services."""
    found = sorted(Store(Paths.here().cache).tools.glob("openstack-services-*/venv/bin/python"))
    if not found:
        return "openstack coe cluster create: not measured, the tests' services are not installed"
    command = [str(found[-1]), "-c", CLI, "coe", "cluster", "create", "--help"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OS_"))}

    def seconds() -> float:
        began = time.monotonic()
        subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    seconds()
    (taken,) = in_turns(rounds, seconds)
    return f"openstack coe cluster create --help: {taken:.1f} s, before anything is asked of a cloud"


def main() -> None:
    """A table and three lines; times in seconds, MiB of the engine with all below it."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    program, sdks = imported("import infra.__main__, infra.openstack"), imported(SDKS)
    print(f"import: {program:.2f} s; what it uses of the SDKs alone: {sdks:.2f} s ({program / sdks:.2f}x)")
    print(cli(rounds))
    with tempfile.TemporaryDirectory() as folder:
        for line in stack(rounds, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
