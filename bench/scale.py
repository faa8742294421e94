"""Checking and rendering of large stack files; the peer is PyYAML, which reads and writes the same documents.

    python -m bench.scale [POOLS ...]

A pool has 50 simulated nodes and ten workloads, so 100 pools are 5000 nodes and 1000 workloads. Seconds are
processor time of this process; memory is its largest resident set so far, so sizes are given ascending.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import yaml

from infra.config import load
from infra.plan.render import render
from infra.strict_yaml import Dumper

SHARING = ({"kind": "exclusive"}, {"kind": "time_slicing", "replicas": 4}, {"kind": "mps", "replicas": 2})
Result = TypeVar("Result")


def stack_file(pools: int, nodes: int = 50, workloads: int = 10) -> str:
    environment = {
        "name": "scale",
        "cluster": {"kind": "embedded"},
        "pools": [
            {"name": f"p{at}", "machine": "g5.2xlarge", "nodes": nodes, "sharing": SHARING[at % 3]}
            for at in range(pools)
        ],
        "workloads": [
            {"name": f"w{at}", "namespace": f"team{at % 20}", "kind": "inference", "pool": f"p{at % pools}",
             "image": "nvcr.io/nvidia/tritonserver:25.10-py3", "replicas": 2}
            for at in range(pools * workloads)
        ],
        "monitoring": {},
    }  # fmt: skip
    return yaml.dump({"config": {"gpuform:environment": environment}}, Dumper=Dumper)


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def measure(pools: int, file: Path) -> str:
    file.write_text(stack_file(pools))
    read, env = timed(lambda: load(file))
    rendered, files = timed(lambda: render(env))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    plain_read, _ = timed(lambda: yaml.load(file.read_bytes(), yaml.CSafeLoader))
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    documents = [list(yaml.load_all(text, yaml.CSafeLoader)) for text in texts]
    written, _ = timed(lambda: [yaml.dump_all(each, Dumper=Dumper) for each in documents])
    return (
        f"{pools:5}  {read:6.2f}  {plain_read:6.2f}  {read / plain_read:5.1f}  {rendered:8.2f}  "
        f"{written:6.2f}  {rendered / written:5.1f}  {memory:10.0f}"
    )


def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f}")
    print("pools  read s  PyYAML  ratio  render s  PyYAML  ratio  memory MiB")
    with TemporaryDirectory() as folder:
        measure(1, Path(folder, "first.yaml"))  # builds the models' validators
        for pools in [int(word) for word in sys.argv[1:]] or [1, 10, 100]:
            print(measure(pools, Path(folder, "Pulumi.scale.yaml")), flush=True)


if __name__ == "__main__":
    main()
