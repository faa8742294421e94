"""Import, first preview, ``pulumi up`` and a preview without changes of 1, 10 and 100 elastic pools, offline.

    python -m bench.aws [POOLS ...]

The peer is made in the same run, on the same control plane with the same stand-ins and charts: what the
stack's state holds, with the inputs that are there, declared one by one in a flat program without
components, model and plan. It has the same credentials, and knows every value
beforehand. Memory is the largest sum over
the engine and everything below it. Needs ``../shared/reference/crds`` for Karpenter's kinds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from gpuform.engine import Engine
from gpuform.paths import Paths
from tests.journey.aws_world import World, world

FLAT = """\
import importlib
import json
from pathlib import Path

import pulumi
import pulumi_aws
import pulumi_kubernetes
from pulumi._types import input_type_py_to_pulumi_names

providers = {
    "aws": pulumi_aws.Provider("aws", region="us-east-1"),
    "kubernetes": pulumi_kubernetes.Provider("kubernetes", kubeconfig="@KUBECONFIG@"),
}

def declare(token, name, inputs, opts):
    package, place, kind = token.split(":")
    if package == "aws" or place == "helm.sh/v3":
        path = place.split("/")[0] if package == "aws" else "helm.v3"
        module = importlib.import_module(f"pulumi_{package}.{path}")
        python = {v: k for k, v in input_type_py_to_pulumi_names(getattr(module, kind + "Args")).items()}
        given = {python[key]: value for key, value in inputs.items() if key in python}
        return getattr(module, kind)(name, **given, opts=opts)
    if "." in place:
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
SDKS = (
    "from pulumi_aws import cloudwatch, ec2, eks, iam, kms, sqs, ssm, vpc; from pulumi_kubernetes.helm.v3 "
    "import Release; from pulumi_kubernetes.apiextensions import CustomResource"
)
TOKEN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "aws",
    "args": ["eks", "get-token", "--cluster-name", "aws-dev"],
    "interactiveMode": "Never",
}
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


def pools(number: int) -> list[dict[str, Any]]:
    """Elastic pools of one machine; a taint of its own keeps each pool's pods apart from the others'."""
    return [
        {
            "name": f"t4-{index}",
            "machine": "g4dn.xlarge",
            "elastic": {"max": {"cpu": 16}},
            "taints": [{"key": "team", "value": f"t{index}"}],
        }
        for index in range(number)
    ]


def flat(ours: World, folder: Path, state: dict[str, Any]) -> Engine:
    """An engine of a project that declares what the state holds, one resource after the other."""
    root, kubeconfig = folder / "flat", ours.checkout.paths.kubeconfig
    (root / "infra").mkdir(parents=True)
    (root / ".gpuform").mkdir()
    (root / ".gpuform" / "kubeconfig").symlink_to(kubeconfig)
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"exec": TOKEN}
    (root / "kubeconfig").write_text(yaml.safe_dump(document))
    (root / "Pulumi.yaml").write_text("name: flat\nruntime: python\nmain: infra/\n")
    (root / "Pulumi.aws-dev.yaml").write_text("config: {}\n")
    rows = [
        {
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
        for item in state["deployment"]["resources"]
        if item["type"].startswith(("aws:", "kubernetes:"))
    ]
    (root / "infra" / "rows.json").write_text(json.dumps(rows))
    (root / "infra" / "__main__.py").write_text(FLAT.replace("@KUBECONFIG@", str(root / "kubeconfig")))
    paths = Paths(root=root, state=root / ".gpuform", cache=ours.checkout.paths.cache)
    return Engine(paths, ours.tools, say=lambda line: None, offline=True)


def measured(engine: Engine) -> dict[str, float]:
    """Seconds of each operation, and MiB; ends with a stack that is up."""
    found = {}
    with peak() as memory:
        for name, operation in (("preview", "preview"), ("up", "up"), ("no-op", "preview")):
            result = getattr(engine, operation)("aws-dev", on_event=lambda event: None)
            found[name] = result.duration_s
            found["resources"] = sum(result.changes.values())
    if result.changed:
        raise SystemExit(f"the last preview is not empty: {result.summary}")
    return {**found, "MiB": memory[0]}


@contextmanager
def peak() -> Iterator[list[float]]:
    """The largest memory of all processes below this one together, looked at ten times a second."""
    found, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            found[0] = max(found[0], below(os.getpid()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def below(pid: int) -> float:
    """MiB of the processes that this one has started, and theirs."""
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


def imported(statement: str) -> float:
    """Seconds of a process that only imports; the second of two, with bytecode in place."""
    for _ in range(2):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", statement], check=True, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - began
    return seconds


def measure(number: int, folder: Path) -> None:
    """Print two lines for one size: ours with the ratio to the flat program, and the flat program."""

    def only(environment: dict[str, Any]) -> None:
        environment.update(pools=pools(number), workloads=[])

    with world(folder, "aws-dev", {}) as ours:
        content = yaml.safe_load(ours.file.read_text())
        only(content["config"]["gpuform:environment"])
        ours.file.write_text(yaml.safe_dump(content))
        ours.run("up")  # to know what the flat program has to declare, and so that neither is the first
        state = ours.engine.export("aws-dev")
        ours.run("destroy")
        peer = flat(ours, folder, state)
        second = measured(peer)
        peer.destroy("aws-dev", on_event=lambda event: None)
        first = measured(ours.engine)
    columns = ("preview", "up", "no-op", "MiB")
    for name, row in (("ours", first), ("flat", second)):
        cells = " ".join(f"{row[column]:9.1f}" for column in columns)
        ratios = " ".join(f"{row[column] / second[column]:8.2f}x" for column in columns)
        print(
            f"{number:5} {name:5} {row['resources']:9.0f} {cells}  {ratios if name == 'ours' else ''}",
            flush=True,
        )


def main() -> None:
    """Two lines per size; times in seconds."""
    sizes = [int(arg) for arg in sys.argv[1:]] or [1, 10, 100]
    program, sdks = imported("import infra.__main__, infra.aws"), imported(SDKS)
    print(f"import: {program:.2f} s; what it uses of the SDKs alone: {sdks:.2f} s ({program / sdks:.2f}x)")
    print("pools       resources   preview        up     no-op       MiB")
    for number in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(number, Path(folder))


if __name__ == "__main__":
    main()
