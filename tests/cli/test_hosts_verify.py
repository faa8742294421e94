"""Own hosts: render, status and verify, before and after they join a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.hosts import expectations, verify
from gpuform.hosts.verify import Report, Verdict
from gpuform.stack.cluster_access import declared_kubeconfig
from gpuform.usage.status import summarise_status
from infra import versions
from infra.config import load, parse
from infra.model.base.errors import InputError
from infra.plan.render import render
from tests.plan.aws_environments import TABLE

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
WRONG = Verdict("gpu-1", "nouveau", "FAIL", "nouveau is loaded", "run `gpuform hosts apply own`")
RIGHT = Verdict("gpu-1", "gpus", "PASS", "", "")
OWN: dict[str, Any] = yaml.safe_load("""
    name: own
    cluster: {kind: hosts, driver: {source: nvidia, version: "580.95.05"}}
    pools:
    - name: a100
      hosts: [gpu-1, gpu-2]
      gpu: {models: [A100-40GB], count: 1}
      sharing: {kind: mig, layout: {3g.20gb: 2}}
""")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def declare(checkout: Path, environment: dict[str, Any]) -> None:
    text = yaml.safe_dump({"config": {"gpuform:environment": environment}})
    (checkout / "Pulumi.own.yaml").write_text(text)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of the checks, which return one success and one failure."""
    calls: list[dict[str, Any]] = []

    def run(inventory: dict[str, Any], root: Path, **rest: Any) -> Report:
        calls.append({"inventory": inventory, **rest})
        return Report(rest["stack"], rest["backend"], (RIGHT, WRONG))

    monkeypatch.setattr(verify, "verify", run)
    return calls


def test_own_hosts_are_asked_over_ssh(checkout: Path, asked: list[dict[str, Any]]) -> None:
    declare(checkout, OWN)
    result = CliRunner().invoke(app, ["hosts", "verify", "own", "--limit", "gpu-1"])
    assert result.exit_code == 1
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "check    gpu-1",
        "gpus     ok",
        "nouveau  FAIL",
        "",
        "gpu-1: nouveau: nouveau is loaded; run `gpuform hosts apply own`",
        "1 host over ssh: 1 check passed, 1 failed, 0 had nothing to check",
    ]
    found = json.loads(CliRunner().invoke(app, ["hosts", "verify", "own", "--json"]).stdout)
    assert (found["ok"], found["hosts"]["gpu-1"]["checks"]["gpus"]["verdict"]) == (False, "PASS")
    call = asked[0]
    assert (call["backend"], call["limit"], call["kubectl"]) == ("ssh", ["gpu-1"], None)
    host = call["inventory"]["_meta"]["hostvars"]["gpu-1"]
    assert host["nvidia_mig_config"]["mig-configs"][host["nvidia_mig_layout"]][0]["mig-devices"] == {
        "3g.20gb": 2
    }


@pytest.mark.parametrize(
    ("cluster", "options", "message"),
    [
        (
            {},
            ["--backend", "kubectl"],
            "--backend: the hosts have joined no cluster (cluster.kubeconfig); use ",
        ),
        ({"kubeconfig": "/missing"}, [], "cluster.kubeconfig: /missing does not exist; leave it out until "),
    ],
)
def test_what_cannot_be_asked_is_bad_input(
    checkout: Path, asked: list[dict[str, Any]], cluster: dict[str, str], options: list[str], message: str
) -> None:
    declare(checkout, OWN | {"cluster": OWN["cluster"] | cluster})
    result = CliRunner().invoke(app, ["hosts", "verify", "own", *options])
    assert (result.exit_code, asked) == (2, [])
    assert result.stderr.startswith(f"error: {message}")


def test_a_joined_host_expects_the_slices_of_the_operator() -> None:
    joined = OWN | {"cluster": OWN["cluster"] | {"kubeconfig": "~/.kube/own"}}
    host = expectations.hosts_inventory(parse(joined))["_meta"]["hostvars"]["gpu-2"]
    assert host["nvidia_mig_layout"] == ""
    assert host["gpuform_mig"] == {"3g.20gb": 2}


def test_nodes_expect_what_the_operator_installs() -> None:
    env = load(ROOT / "Pulumi.local.yaml")
    nodes = [
        {"metadata": {"name": "n1", "labels": {"gpuform.io/pool": "a100-mig"}}},
        {"metadata": {"name": "n2", "labels": {"gpuform.io/pool": "cpu"}}},
        {"metadata": {"name": "n3", "labels": {"gpuform.io/pool": "of-another-stack"}}},
        {"metadata": {"name": "n4"}},
    ]
    hosts = expectations.nodes_inventory(env, nodes, Path("/k"), None)["_meta"]["hostvars"]
    assert list(hosts) == ["n1", "n2"]
    assert hosts["n1"]["gpuform_mig"] == {"2g.10gb": 2, "3g.20gb": 1}
    assert hosts["n1"]["nvidia_driver_version"] == "580.178.04"  # the stack has V100s
    assert hosts["n1"]["nvidia_container_toolkit_version"] == versions.CONTAINER_TOOLKIT
    assert "validate_inventory_gpu" not in hosts["n2"]


def test_nodes_that_differ_in_gpus_expect_their_own_number() -> None:
    has = {"gpuform.io/pool": "p0"}
    counted = "karpenter.k8s.aws/instance-gpu-count"
    nodes = [{"metadata": {"name": n, "labels": {**has, counted: n}}} for n in ("1", "4")]
    hosts = expectations.nodes_inventory(TABLE["several counts"], nodes, Path("/k"), None)["_meta"][
        "hostvars"
    ]
    assert {name: host["validate_inventory_gpu"]["count"] for name, host in hosts.items()} == {"1": 1, "4": 4}


GOOD = yaml.safe_load((ROOT / "tests/config/good_hosts.yaml").read_text())


def alone() -> dict[str, Any]:
    cluster = {key: GOOD["cluster"][key] for key in GOOD["cluster"] if key not in ("kubeconfig", "context")}
    return {**GOOD, "cluster": cluster, "workloads": []}


def test_render_writes_the_inventory_beside_the_manifests(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["render", "onprem-dev", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "gpu-operator.yaml").is_file()
    inventory = json.loads((tmp_path / "inventory.json").read_text())
    assert inventory["gpu"]["hosts"] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5"]
    made = ["cost.yaml", "environment.yaml", "inventory.json", "pools.yaml"]
    assert list(render(parse(alone()))) == made, "no manifest for hosts that have joined nothing"


def test_the_cluster_of_a_status_is_the_one_that_hosts_have_joined() -> None:
    kubeconfig, context = declared_kubeconfig(parse(GOOD), Paths.here())
    assert (kubeconfig, context) == (Path("~/.kube/labs").expanduser(), "labs")
    with pytest.raises(InputError) as caught:
        declared_kubeconfig(parse(alone()), Paths.here())
    assert str(caught.value) == (
        "cluster.kubeconfig: missing, so there is no cluster; see `gpuform hosts status`"
    )


def test_a_pool_of_own_hosts_says_what_it_runs_on() -> None:
    pools = {pool.name: pool.machine for pool in summarise_status(parse(GOOD), [], []).pools}
    assert pools == {
        "a100": "A100-PCIE-40GB",
        "v100": "V100-PCIE-16GB",
        "h100": "H100-SXM",
        "cpu": "own hosts",
    }
