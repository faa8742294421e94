"""The peer of a stack: a flat program that declares every resource of its state, run by the same engine.

It has no components, model and plan, and knows every value beforehand. Memory is the largest sum over the
engine and its child processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from tests.journey.aws_world import World

FLAT = """\
import importlib
import json
from pathlib import Path

import pulumi
import pulumi_kubernetes
import pulumi_@PACKAGE@
from pulumi._types import input_type_py_to_pulumi_names

providers = {
    "@PACKAGE@": pulumi_@PACKAGE@.Provider("@PACKAGE@", **@SETTINGS@),
    "kubernetes": pulumi_kubernetes.Provider("kubernetes", kubeconfig="@KUBECONFIG@"),
}

def declare(token, name, inputs, opts):
    package, place, kind = token.split(":")
    if package != "kubernetes" or place == "helm.sh/v3":
        path = place.split("/")[0] if package != "kubernetes" else "helm.v3"
        module = importlib.import_module(f"pulumi_{package}.{path}")
        python = {v: k for k, v in input_type_py_to_pulumi_names(getattr(module, kind + "Args")).items()}
        given = {python[key]: value for key, value in inputs.items() if key in python}
        return getattr(module, kind)(name, **given, opts=opts)
    if "." in place and "spec" in inputs:
        metadata, spec = inputs["metadata"], inputs["spec"]
        custom = pulumi_kubernetes.apiextensions.CustomResource
        return custom(name, api_version=place, kind=kind, metadata=metadata, spec=spec, opts=opts)
    return pulumi.CustomResource(token, name, inputs, opts)

made = {}
for row in json.loads((Path(__file__).parent / "rows.json").read_text()):
    opts = pulumi.ResourceOptions(
        provider=providers[row["type"].partition(":")[0]],
        depends_on=[made[urn] for urn in row["after"] if urn in made],
    )
    made[row["urn"]] = declare(row["type"], row["name"], row["inputs"], opts)
"""
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
COLUMNS = ("preview", "CPU", "up", "no-op", "MiB")


def flat_engine(
    stack_world: World,
    folder: Path,
    state: Mapping[str, Any],
    package: str,
    settings: Mapping[str, Any],
    user: Mapping[str, Any] | None = None,
) -> Engine:
    """An engine of a project that declares the resources of ``state`` one after the other.

    ``package`` is the cloud's, ``settings`` are its provider's; ``user`` replaces the kubeconfig's user.
    """
    root, kubeconfig = folder / "flat", stack_world.checkout.paths.kubeconfig
    (root / "infra").mkdir(parents=True)
    (root / ".gpuform").mkdir()
    (root / ".gpuform" / "kubeconfig").symlink_to(kubeconfig)
    document = yaml.safe_load(kubeconfig.read_text())
    if user:
        document["users"][0]["user"] = dict(user)
    (root / "kubeconfig").write_text(yaml.safe_dump(document))
    (root / "Pulumi.yaml").write_text("name: flat\nruntime: python\nmain: infra/\n")
    # The engine installs a cloud's plugin if the stack file names the cloud.
    (root / f"Pulumi.{stack_world.stack}.yaml").write_text(f"config: {{}} # {package}\n")
    (root / "infra" / "rows.json").write_text(json.dumps(list(_rows(state, (f"{package}:", "kubernetes:")))))
    program = FLAT.replace("@KUBECONFIG@", str(root / "kubeconfig")).replace("@PACKAGE@", package)
    (root / "infra" / "__main__.py").write_text(program.replace("@SETTINGS@", repr(dict(settings))))
    paths = Paths(root=root, state=root / ".gpuform", cache=stack_world.checkout.paths.cache)
    return Engine(paths, stack_world.tools, say=lambda line: None, offline=True)


def _rows(state: Mapping[str, Any], types: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for item in state["deployment"]["resources"]:
        if item["type"].startswith(types):
            yield {
                "urn": item["urn"],
                "type": item["type"],
                "name": item["urn"].rsplit("::", 1)[-1],
                "inputs": {
                    key: "a secret" if isinstance(value, dict) and "ciphertext" in value else value
                    for key, value in item["inputs"].items()
                    if not key.startswith("__")
                },
                "after": item.get("dependencies") or [],
            }


def measure_operations(engine: Engine, stack: str) -> dict[str, float]:
    """Seconds of each operation, CPU seconds of the first preview, and MiB; the stack is up afterwards.

    CPU covers all processes that the engine started, so other work on the machine does not count.
    """
    figures: dict[str, float] = {}
    with peak_memory() as memory:
        for name, operation in (("preview", "preview"), ("up", "up"), ("no-op", "preview")):
            began = os.times()
            result = getattr(engine, operation)(stack, on_event=lambda event: None)
            figures[name] = result.duration_s
            figures.setdefault("CPU", sum(os.times()[2:4]) - sum(began[2:4]))
            figures["resources"] = sum(result.changes.values())
    if result.changed:
        raise SystemExit(f"the last preview is not empty: {result.summary}")
    return {**figures, "MiB": memory[0]}


def lines(label: str, own: Mapping[str, float], peer: Mapping[str, float]) -> Iterator[str]:
    """Two lines: ours with the ratio to the flat program, and the flat program."""
    ratios = " ".join(f"{own[column] / peer[column]:8.2f}x" for column in COLUMNS)
    for name, row, suffix in (("ours", own, ratios), ("flat", peer, "")):
        cells = " ".join(f"{row[column]:9.1f}" for column in COLUMNS)
        yield f"{label:5} {name:5} {row['resources']:9.0f} {cells}  {suffix}"


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The largest memory in MiB of all child processes together, sampled ten times a second."""
    largest, stop = [0.0], threading.Event()

    def sample() -> None:
        while not stop.wait(0.1):
            largest[0] = max(largest[0], descendants_mib(os.getpid()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield largest
    finally:
        stop.set()
        thread.join()


def descendants_mib(pid: int) -> float:
    total, todo = 0.0, [pid]
    parents: dict[int, list[tuple[int, float]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            pages = int((folder / "statm").read_text().split()[1])
        except (OSError, ValueError):
            continue
        parents.setdefault(parent, []).append((int(folder.name), pages * PAGE_MIB))
    while todo:
        for child, size in parents.get(todo.pop(), []):
            total += size
            todo.append(child)
    return total


def import_seconds(statement: str) -> float:
    """Seconds of a process that only imports; the second of two, with cached bytecode."""
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", statement], check=True, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - began
    return seconds
