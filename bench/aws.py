"""Import, first preview, ``pulumi up`` and a preview without changes of 1, 10 and 100 elastic pools, offline.

    python -m bench.aws [POOLS ...]

The peer (`bench/flat.py`) runs in the same run, on the same control plane with the same stand-ins, charts and
credentials. Needs ``../shared/reference/crds`` for Karpenter's kinds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from bench.flat import COLUMNS, flat_engine, import_seconds, lines, measure_operations
from tests.journey.aws_world import world
from tests.journey.conftest import HERE

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


def pools(number: int) -> list[dict[str, Any]]:
    """Elastic pools of one machine; each has its own taint, which keeps the pods of the pools apart."""
    return [
        {
            "name": f"t4-{index}",
            "machine": "g4dn.xlarge",
            "elastic": {"max": {"cpu": 16}},
            "taints": [{"key": "team", "value": f"t{index}"}],
        }
        for index in range(number)
    ]


def measure(number: int, folder: Path) -> None:
    declared = yaml.safe_load((HERE.root / "Pulumi.aws-dev.yaml").read_text())
    environment = declared["config"]["gpuform:environment"] | {"pools": pools(number), "workloads": []}
    with world(folder, "aws-dev", environment) as stack_world:
        stack_world.run("up")  # shows what the flat program must declare; also, neither of the two runs first
        state = stack_world.engine.export("aws-dev")
        stack_world.run("destroy")
        peer = flat_engine(stack_world, folder, state, "aws", {"region": "us-east-1"}, {"exec": TOKEN})
        second = measure_operations(peer, "aws-dev")
        peer.destroy("aws-dev", on_event=lambda event: None)
        first = measure_operations(stack_world.engine, "aws-dev")
    for line in lines(str(number), first, second):
        print(line, flush=True)


def main() -> None:
    sizes = [int(arg) for arg in sys.argv[1:]] or [1, 10, 100]
    program, sdks = import_seconds("import infra.__main__, infra.program.aws"), import_seconds(SDKS)
    print(f"import: {program:.2f} s; what it uses of the SDKs alone: {sdks:.2f} s ({program / sdks:.2f}x)")
    print("pools       resources " + " ".join(f"{column:>9}" for column in COLUMNS))
    for number in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measure(number, Path(folder))


if __name__ == "__main__":
    main()
