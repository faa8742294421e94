"""``gpuform hosts``: bad input, and output for people and programs (on booted hosts: tests/ansible).

Also what render, status and verify say of own hosts, before and after they join a cluster.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.hosts import Event, HostResult, Outcome, expectations, verify
from gpuform.hosts.progress import ProgressTable, print_lines, report_progress
from gpuform.hosts.verify import Report, Verdict
from gpuform.reports import hosts as tables
from gpuform.stack.cluster_access import declared_kubeconfig
from gpuform.usage.status import summarise_status
from infra import versions
from infra.config import load, parse
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.plan.render import render
from tests.build.aws_environments import TABLE
from tests.build.aws_stacks import ROOT

pytestmark = pytest.mark.unit

DONE = HostResult(ok=True, changed=2, changes=("role : Write", "role : Load"), diffs=("--- a\n+++ b\n+x",))
FAILED = HostResult(ok=False, failed=1, message="role : Break: why", task="role : Break")
OFF = HostResult(ok=False, unreachable=True, message="cannot be reached (No route to host)")
SAME = HostResult(ok=True)
LAB: dict[str, Any] = {
    "name": "lab",
    "cluster": {"kind": "hosts"},
    "pools": [{"name": "cpu", "hosts": ["cpu-1", "cpu-2"]}],
}
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
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    (tmp_path / "ansible" / "playbooks").mkdir(parents=True)
    (tmp_path / "ansible" / "playbooks" / "site.yml").write_text("[]\n")
    monkeypatch.chdir(tmp_path)
    declare(LAB)
    declare(OWN)
    return CliRunner()


def declare(environment: dict[str, Any], **cluster: Any) -> None:
    stack = {"config": {"gpuform:environment": environment | {"cluster": environment["cluster"] | cluster}}}
    Path(f"Pulumi.{environment['name']}.yaml").write_text(yaml.safe_dump(stack))


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results of the next runs; each run replaces its result by its arguments."""
    asked: list[Any] = []

    def play(playbook: str, inventory: Any, **more: Any) -> Outcome:
        found = asked.pop(0)
        more["on_event"](Event("changed", host="cpu-1", task="role : Write"))
        asked.append((playbook, more["check"], list(more["limit"])))
        return found

    monkeypatch.setattr("gpuform.hosts.run", play)
    return asked


WRONG = Verdict("gpu-1", "nouveau", "FAIL", "nouveau is loaded", "run `gpuform hosts apply own`")
RIGHT = Verdict("gpu-1", "gpus", "PASS", "", "")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of the checks, which return one success and one failure."""
    calls: list[dict[str, Any]] = []

    def run(inventory: dict[str, Any], **rest: Any) -> Report:
        calls.append({"inventory": inventory, **rest})
        return Report(rest["stack"], rest["backend"], (RIGHT, WRONG))

    monkeypatch.setattr(verify, "verify", run)
    return calls


@pytest.mark.parametrize(
    ("cluster", "command", "message"),
    [
        ({}, "apply lab --yes --limit gpu-9",
         "limit: gpu-9 is neither a host nor a group with hosts; the hosts are cpu-1,"),
        ({}, "apply lab --yes --playbook nothing.yml", "playbook: nothing.yml is not in "),
        ({"kubeconfig": "/missing"}, "apply lab --yes", "cluster.kubeconfig: /missing does not exist; leav"),
        ({"kubeconfig": "/missing"}, "verify lab", "cluster.kubeconfig: /missing does not exist; leave it "),
        ({}, "verify lab --backend kubectl",
         "--backend: the hosts have joined no cluster (cluster.kubeconfig); use "),
    ],
)  # fmt: skip
def test_bad_input(
    run: CliRunner, asked: list[dict[str, Any]], cluster: dict[str, str], command: str, message: str
) -> None:
    declare(LAB, **cluster)
    result = run.invoke(app, ["hosts", *command.split()])
    assert (result.exit_code, asked) == (2, [])
    assert result.stderr.startswith(f"error: {message}")


BOTH_BAD = "2 of 2 are not done (cpu-1, cpu-2); fix them and run the same command again"
UNREAD = Outcome({"cpu-1": HostResult(ok=False)}, 4, message="ERROR: no such module")


@pytest.mark.parametrize(
    ("command", "found", "code", "shown", "error"),
    [
        ("apply lab --yes", Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0), 0,
         ["  cpu-1: changed: role : Write", "cpu-1 ok 2", "cpu-2 ok 0"], ""),
        ("apply lab --yes", Outcome({"cpu-1": FAILED, "cpu-2": OFF}, 4), 1,
         ["cpu-1: role : Break: why", "cpu-2: cannot be reached (No route to host)"], f"{BOTH_BAD}\n"),
        ("apply lab --yes", UNREAD, 1, [], "ERROR: no such module; then run the same command again\n"),
        ("check lab --diff", Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0), 3,
         ["cpu-1: would change: role : Load", "    +x"], ""),
        ("check lab", Outcome({"cpu-1": SAME, "cpu-2": SAME}, 0), 0, [], ""),
        ("check lab", Outcome({"cpu-1": DONE, "cpu-2": OFF}, 4), 1, [],
         "1 of 2 are not done (cpu-2); fix them and run the same command again\n"),
    ],
)  # fmt: skip
def test_exit_codes_and_texts(
    run: CliRunner, outcome: list[Any], command: str, found: Outcome, code: int, shown: list[str], error: str
) -> None:
    outcome.append(found)
    result = run.invoke(app, ["hosts", *command.split()])
    assert (result.exit_code, result.stderr) == (code, f"failed: hosts: {error}" if error else ""), (
        result.output
    )
    assert outcome == [("site.yml", "check" in command, [])]
    lines = result.stdout.splitlines()
    assert {*shown} <= {*lines, *(" ".join(line.split()) for line in lines)}


@pytest.mark.parametrize(
    ("words", "answer", "code", "error"),
    [
        ("apply lab", None, 2, "error: --yes: is needed without a terminal; nothing was changed; add it"),
        ("apply lab --json", "yes", 2, "error: --yes: is needed with --json; nothing was changed; add it"),
        ("apply lab", "no", 1, "nothing was changed"),
        ("apply lab", "yes", 0, ""),
    ],
)
def test_apply_changes_hosts_only_once_someone_agrees(
    run: CliRunner, outcome: list[Any], monkeypatch: pytest.MonkeyPatch, words: str, answer: str | None,
    code: int, error: str,
) -> None:  # fmt: skip
    outcome.append(Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0))
    monkeypatch.setattr("gpuform.cli.output.has_terminal", lambda: answer is not None)
    result = run.invoke(app, ["hosts", *words.split()], input=f"{answer}\n")
    assert result.exit_code == code, result.output
    assert error in result.stderr
    assert isinstance(outcome[0], Outcome) == (code != 0)  # the playbook has run only if it is replaced
    if words == "apply lab":
        shown = " ".join(result.stdout.split())
        assert "cpu-1 cpu-1 kube_node, pool_cpu" in shown
        assert "may restart hosts); `gpuform hosts check lab` shows each change" in shown


@pytest.mark.parametrize("command", ["apply", "check", "status", "verify"])
def test_no_stack_is_meant_without_a_name(run: CliRunner, command: str) -> None:
    result = run.invoke(app, ["hosts", command])
    assert (result.exit_code, "Missing argument" in result.stderr) == (2, True)


def test_json_is_the_documented_form(run: CliRunner, outcome: list[Any]) -> None:
    outcome.append(Outcome({"cpu-1": DONE, "cpu-2": FAILED}, 2))
    result = run.invoke(app, ["hosts", "apply", "lab", "--yes", "--json", "--limit", "pool_cpu"])
    assert result.exit_code == 1
    ok = {"ok": True, "changed": 2, "failed": 0, "unreachable": False, "message": ""}
    bad = {"ok": False, "changed": 0, "failed": 1, "unreachable": False, "message": "role : Break: why"}
    assert json.loads(result.stdout) == {"ok": False, "hosts": {"cpu-1": ok, "cpu-2": bad}, "nodes": {}}
    outcome[:] = [Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0)]
    checked = json.loads(run.invoke(app, ["hosts", "check", "lab", "--json"]).stdout)
    assert checked["changes"] == {"cpu-1": ["role : Write", "role : Load"], "cpu-2": []}


def test_status_shows_what_is_there_beside_what_is_declared(run: CliRunner, outcome: list[Any]) -> None:
    facts = {"system": "Debian 12.15", "gpus": ["Tesla T4, 580.95.05"], "toolkit": "1.19.1"}
    outcome.append(Outcome({"cpu-1": HostResult(ok=True, facts=facts), "cpu-2": OFF}, 4))
    result = run.invoke(app, ["hosts", "status", "lab", "--json"])
    assert result.exit_code == 1
    first, second = json.loads(result.stdout)["hosts"]
    assert (first["driver"], first["gpus"], first["toolkit"]) == ("580.95.05", ["Tesla T4"], "1.19.1")
    assert (first["pool"], first["reached"], first["node"]) == ("cpu", True, "-")
    assert (second["reached"], second["message"]) == (False, "cannot be reached (No route to host)")
    other = {**first, "declared": {"driver": "580.82.07", "toolkit": "1.19.1"}}
    text = printed(tables.states_table([other, second]))
    assert "580.95.05, declared 580.82.07" in text
    assert "1x Tesla T4" in text
    unread = {**second, "declared": other["declared"]}
    assert "none" not in printed(tables.states_table([unread])), "what it has is not known"


def test_on_a_terminal_a_table_shows_where_each_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    board = ProgressTable(["cpu-1", "cpu-2"])
    for event in (
        Event("play", message="Prepare"),
        Event("started", host="cpu-1", task="Write"),
        Event("started", host="cpu-2", task="Write"),
        Event("changed", host="cpu-1", task="Write"),
        Event("unreachable", host="cpu-2", task="Write", message="why"),
        Event("started", host="cpu-1", task="Load"),
    ):
        board.add(event)
    rows = [line.split() for line in printed(board.table()).splitlines()]
    assert ["cpu-1", "running", "1", "Load"] in rows
    assert ["cpu-2", "unreachable", "0", "Write:", "why"] in rows
    board.add(Event("started", host="cpu-1", task="validate_inventory : Require a pool for every host " * 2))
    narrow = printed(board.table(), width=80).splitlines()
    assert [line.split()[:4] for line in narrow[2:]] == [
        ["cpu-1", "running", "1", "validate_inventory"],
        ["cpu-2", "unreachable", "0", "Write:"],
    ]
    output = io.StringIO()
    terminal = Console(file=output, force_terminal=True, width=100)
    with report_progress(terminal, ["cpu-1"], print) as on_event:
        on_event(Event("failed", host="cpu-1", task="Write", message="why"))
    assert "\x1b[31mfailed" in output.getvalue()


def test_no_color_leaves_the_colours_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(tables.results_table({"cpu-1": FAILED}, check=False), force_terminal=True)
    assert "failed" in text
    assert "\x1b[31m" not in text


def test_progress_without_a_terminal_is_a_line_per_change_and_failure() -> None:
    output: list[str] = []
    add = print_lines(output.append)
    for event in (
        Event("play", message="Prepare"),
        Event("ok", host="cpu-1", task="Look"),
        Event("changed", host="cpu-1", task="Write"),
        Event("failed", host="cpu-2", task="Break", message="why", ignored=True),
    ):
        add(event)
    assert output == ["Prepare", "  cpu-1: changed: Write", "  cpu-2: failed (ignored): Break: why"]


def printed(table: Any, **terminal: Any) -> str:
    output = io.StringIO()
    Console(file=output, **{"width": 200, **terminal}).print(table)
    return output.getvalue()


def test_own_hosts_are_asked_over_ssh(run: CliRunner, asked: list[dict[str, Any]]) -> None:
    result = run.invoke(app, ["hosts", "verify", "own", "--limit", "gpu-1"])
    assert result.exit_code == 1
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "check    gpu-1",
        "gpus     ok",
        "nouveau  FAIL",
        "",
        "gpu-1: nouveau: nouveau is loaded; run `gpuform hosts apply own`",
        "1 host over ssh: 1 check passed, 1 failed, 0 had nothing to check",
    ]
    found = json.loads(run.invoke(app, ["hosts", "verify", "own", "--json"]).stdout)
    assert (found["ok"], found["hosts"]["gpu-1"]["checks"]["gpus"]["verdict"]) == (False, "PASS")
    call = asked[0]
    assert (call["backend"], call["limit"], call["kubectl"]) == ("ssh", ["gpu-1"], None)
    host = call["inventory"]["_meta"]["hostvars"]["gpu-1"]
    (layout,) = host["nvidia_mig_config"]["mig-configs"][host["nvidia_mig_layout"]]
    assert layout["mig-devices"] == {"3g.20gb": 2}


def test_a_joined_host_expects_the_slices_of_the_operator() -> None:
    joined = OWN | {"cluster": OWN["cluster"] | {"kubeconfig": "~/.kube/own"}}
    host = expectations.hosts_inventory(parse(joined))["_meta"]["hostvars"]["gpu-2"]
    assert (host["nvidia_mig_layout"], host["gpuform_mig"]) == ("", {"all": {"3g.20gb": 2}})


def expected_of_nodes(env: Environment, **labels: dict[str, str]) -> dict[str, Any]:
    info = {"nodeInfo": {"kubeletVersion": "v1.34.2+rke2r1"}}
    nodes = [{"metadata": {"name": name, "labels": own}, "status": info} for name, own in labels.items()]
    found: dict[str, Any] = expectations.nodes_inventory(env, nodes, Path("/k"), None)["_meta"]["hostvars"]
    return found


def test_nodes_expect_what_the_operator_installs() -> None:
    pools = {"n1": "a100-mig", "n2": "cpu", "n3": "of-another-stack"}
    labels = {name: {"gpuform.io/pool": pool} for name, pool in pools.items()}
    hosts = expected_of_nodes(load(ROOT / "Pulumi.local.yaml"), **labels, n4={})
    assert list(hosts) == ["n1", "n2"]
    assert hosts["n1"]["gpuform_mig"] == {"all": {"2g.10gb": 2, "3g.20gb": 1}}
    assert hosts["n1"]["nvidia_driver_version"] == "580.178.04"  # the stack has V100s
    assert hosts["n1"]["nvidia_container_toolkit_version"] == versions.CONTAINER_TOOLKIT
    assert "validate_inventory_gpu" not in hosts["n2"]
    assert hosts["n1"]["gpuform_distribution"] == "rke2"


def test_nodes_that_differ_in_gpus_expect_their_own_number() -> None:
    counted = "karpenter.k8s.aws/instance-gpu-count"
    labels = {count: {"gpuform.io/pool": "p0", counted: count} for count in ("1", "4")}
    hosts = expected_of_nodes(TABLE["several counts"], **labels)
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
    message = "cluster.kubeconfig: missing, so there is no cluster; see `gpuform hosts status`"
    assert str(caught.value) == message


def test_a_pool_of_own_hosts_says_what_it_runs_on() -> None:
    pools = {pool.name: pool.machine for pool in summarise_status(parse(GOOD), [], []).pools}
    gpus = {"a100": "A100-PCIE-40GB", "v100": "V100-PCIE-16GB", "h100": "H100-SXM"}
    assert pools == {**gpus, "cpu": "own hosts"}
