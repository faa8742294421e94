"""The example stacks, brought up and then adopted: the file declares what runs, and its update keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import load, parse
from infra.model.pool import allocatable
from infra.plan import quotas, sharing
from lab.toolchain import Toolchain
from tests.conftest import kubectl_at
from tests.journey.conftest import cloned, close

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

KINDS = "nodes,namespaces,resourcequotas,daemonsets"


def nodes(text: str) -> dict[str, Any]:
    """Labels and taints by node."""
    return {
        item["metadata"]["name"]: (item["metadata"]["labels"], item["spec"].get("taints", []))
        for item in json.loads(text)["items"]
        if item["kind"] == "Node"
    }


@pytest.mark.parametrize("stack", ["local", "aws-dev", "openstack-dev"])
def test_an_example_stack_is_adopted_as_it_runs(tmp_path: Path, stack: str) -> None:
    checkout = cloned(tmp_path / "checkout")
    root = checkout.paths.root
    try:
        checkout.gpuform("up", stack, *(() if stack == "local" else ("--offline",)), patience_s=600)
        kubeconfig = replace(checkout.paths, stack=stack).kubeconfig

        def kubectl(*arguments: str) -> str:
            return kubectl_at(Toolchain(checkout.paths), kubeconfig, *arguments)

        before = kubectl("get", KINDS, "-A", "-o", "json")
        (root / "dump").mkdir()
        (root / "dump/all.json").write_text(before)
        maps = kubectl("get", "configmaps", "-n", "gpu-operator", "-o", "json")
        (root / "dump/maps.json").write_text(maps)
        checkout.gpuform("adopt", "--kubeconfig", str(kubeconfig), "-o", "Pulumi.there.yaml")
        written = yaml.safe_load((root / "Pulumi.there.yaml").read_text())["config"]["gpuform:environment"]
        dumped = json.loads(checkout.gpuform("adopt", "--from", "dump", "--json").stdout)["environment"]
        assert {**dumped, "cluster": written["cluster"]} == written

        declared, found = load(root / f"Pulumi.{stack}.yaml"), parse(written)
        live = nodes(before)
        running = {labels["gpuform.io/pool"] for labels, _ in live.values() if "gpuform.io/pool" in labels}
        with_gpus = [pool for pool in declared.pools if pool.gpus and pool.name in running]
        assert {pool.name for pool in found.pools} == {pool.name for pool in with_gpus}
        for pool in with_gpus:
            other = found.pool(pool.name)
            assert allocatable.max_resources(other) == allocatable.max_resources(pool)
            assert sharing.pool_taints(found, other) == sharing.pool_taints(declared, pool)
        assert [item["spec"] for item in quotas.resource_quotas(found)] == [
            item["spec"] for item in quotas.resource_quotas(declared)
        ]
        for pool in found.pools:
            for labels, _ in (
                entry for entry in live.values() if entry[0].get("gpuform.io/pool") == pool.name
            ):
                assert sharing.pool_labels(found, pool).items() <= labels.items()
        said = checkout.gpuform("preview", "there").stdout
        assert "evicts no pods" in said
        assert nodes(kubectl("get", "nodes", "-o", "json")) == live
    finally:
        close(checkout)
