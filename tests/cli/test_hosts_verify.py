"""``gpuform hosts verify``: its checks for each kind of stack, its output, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gpuform.cli.main import app
from gpuform.hosts import expectations, verify
from gpuform.hosts.verify import Report, Verdict
from infra.config import load, parse
from tests.plan.aws_environments import TABLE

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
WRONG = Verdict("gpu-1", "nouveau", "FAIL", "nouveau is loaded", "run `gpuform hosts apply own`")
RIGHT = Verdict("gpu-1", "gpus", "PASS", "", "")
OWN = {
    "name": "own",
    "cluster": {
        "kind": "hosts",
        "driver": {"source": "nvidia", "version": "580.95.05"},
    },
    "pools": [
        {
            "name": "a100",
            "hosts": ["gpu-1", "gpu-2"],
            "gpu": {"models": ["A100-40GB"], "count": 1},
            "sharing": {"kind": "mig", "layout": {"3g.20gb": 2}},
        }
    ],
}


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
    (call,) = asked
    assert (call["backend"], call["limit"], call["kubectl"]) == ("ssh", ["gpu-1"], None)
    host = call["inventory"]["_meta"]["hostvars"]["gpu-1"]
    assert host["nvidia_mig_config"]["mig-configs"][host["nvidia_mig_layout"]][0]["mig-devices"] == {
        "3g.20gb": 2
    }


def test_the_json_form(checkout: Path, asked: list[dict[str, Any]]) -> None:
    declare(checkout, OWN)
    result = CliRunner().invoke(app, ["hosts", "verify", "own", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "stack": "own",
        "backend": "ssh",
        "ok": False,
        "hosts": {
            "gpu-1": {
                "ok": False,
                "checks": {
                    "gpus": {"verdict": "PASS", "fact": "", "remedy": ""},
                    "nouveau": {
                        "verdict": "FAIL",
                        "fact": "nouveau is loaded",
                        "remedy": "run `gpuform hosts apply own`",
                    },
                },
            }
        },
    }


def test_all_that_is_right_ends_well(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(checkout, OWN)
    monkeypatch.setattr(verify, "verify", lambda *_, **rest: Report(rest["stack"], rest["backend"], (RIGHT,)))
    result = CliRunner().invoke(app, ["hosts", "verify", "own"])
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("cluster", "options", "message"),
    [
        (
            {},
            ["--backend", "kubectl"],
            "error: --backend: the hosts have joined no cluster (cluster.kubeconfig); use --backend ssh\n",
        ),
        (
            {"kubeconfig": "/missing"},
            [],
            (
                "error: cluster.kubeconfig: /missing does not exist; "
                "leave it out until the hosts have joined a cluster\n"
            ),
        ),
    ],
)
def test_what_cannot_be_asked_is_bad_input(
    checkout: Path, asked: list[dict[str, Any]], cluster: dict[str, str], options: list[str], message: str
) -> None:
    declare(checkout, OWN | {"cluster": OWN["cluster"] | cluster})  # type: ignore[operator]
    result = CliRunner().invoke(app, ["hosts", "verify", "own", *options])
    assert (result.exit_code, result.stderr) == (2, message)
    assert not asked


def test_nodes_of_another_cluster_are_not_reached_by_ssh() -> None:
    result = CliRunner().invoke(app, ["hosts", "verify", "local", "--backend", "ssh"])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --backend: the nodes of a cluster of kind embedded are not reached by ssh; "
        "use --backend kubectl\n"
    )


def test_a_cluster_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path))
    result = CliRunner().invoke(app, ["hosts", "verify", "local"])
    assert result.exit_code == 1
    assert result.stderr.startswith("failed: cluster of local: cannot be reached (")


def test_a_joined_host_expects_the_slices_of_the_operator() -> None:
    joined = OWN | {"cluster": OWN["cluster"] | {"kubeconfig": "~/.kube/own"}}  # type: ignore[operator]
    host = expectations.of_hosts(parse(joined))["_meta"]["hostvars"]["gpu-2"]
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
    hosts = expectations.of_nodes(env, nodes, Path("/k"), None)["_meta"]["hostvars"]
    assert list(hosts) == ["n1", "n2"]
    assert hosts["n1"]["gpuform_mig"] == {"2g.10gb": 2, "3g.20gb": 1}
    assert hosts["n1"]["nvidia_driver_version"] == "580.95.05"  # the stack has V100s
    assert hosts["n1"]["nvidia_container_toolkit_version"] == "1.20.0"
    assert "validate_inventory_gpu" not in hosts["n2"]


def test_nodes_that_differ_in_gpus_expect_their_own_number() -> None:
    has = {"gpuform.io/pool": "p0"}
    counted = "karpenter.k8s.aws/instance-gpu-count"
    nodes = [{"metadata": {"name": n, "labels": {**has, counted: n}}} for n in ("1", "4")]
    hosts = expectations.of_nodes(TABLE["several counts"], nodes, Path("/k"), None)["_meta"]["hostvars"]
    assert {name: host["validate_inventory_gpu"]["count"] for name, host in hosts.items()} == {"1": 1, "4": 4}
