"""``gpuform render`` and ``gpuform status`` of own hosts, before and after joining a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.stack.cluster_access import cluster_of
from gpuform.usage.status import summarise
from infra.config import parse
from infra.model.errors import InputError

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
GOOD = yaml.safe_load((ROOT / "tests/config/good_hosts.yaml").read_text())


def alone() -> dict[str, Any]:
    cluster = {key: GOOD["cluster"][key] for key in GOOD["cluster"] if key not in ("kubeconfig", "context")}
    return {**GOOD, "cluster": cluster, "workloads": []}


def test_render_writes_the_inventory_beside_the_manifests(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["render", "onprem-dev", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    golden = ROOT / "tests/golden/onprem-dev"
    reviewed = {path.name.removesuffix(".diff") for path in golden.iterdir()}
    elsewhere = {"dashboards.yaml"}  # tests/plan/dashboards has each dashboard once
    assert {path.name for path in tmp_path.iterdir()} == reviewed | elsewhere
    inventory = json.loads((tmp_path / "inventory.json").read_text())
    assert inventory["gpu"]["hosts"] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5"]


def test_hosts_that_have_joined_nothing_render_no_manifest() -> None:
    from infra.plan.render import render

    made = ["cost.yaml", "environment.yaml", "inventory.json", "pools.yaml"]
    assert list(render(parse(alone()))) == made


def test_the_cluster_of_a_status_is_the_one_that_hosts_have_joined() -> None:
    kubeconfig, context = cluster_of(parse(GOOD), Paths.here())
    assert (kubeconfig, context) == (Path("~/.kube/labs").expanduser(), "labs")
    with pytest.raises(InputError) as caught:
        cluster_of(parse(alone()), Paths.here())
    assert str(caught.value) == (
        "cluster.kubeconfig: missing, so there is no cluster; see `gpuform hosts status`"
    )


def test_a_pool_of_own_hosts_says_what_it_runs_on() -> None:
    pools = {pool.name: pool.machine for pool in summarise(parse(GOOD), [], []).pools}
    assert pools == {
        "a100": "A100-PCIE-40GB",
        "v100": "V100-PCIE-16GB",
        "h100": "H100-SXM",
        "cpu": "own hosts",
    }
