"""``gpuform up``, ``local up`` and ``doctor STACK``: order of checks, what stops, and passed arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.cli import up as up_command
from gpuform.cli.main import app
from gpuform.engine import EngineFailure, Message
from gpuform.engine import Result as Outcome
from gpuform.stack import preflight
from gpuform.stack.preflight.check import Finding
from gpuform.usage.queues import QueueStatus, Waiting
from gpuform.usage.status import summarise_status
from infra.config import load
from infra.model.base.guard_names import GUARD
from lab.plane import ControlPlane
from lab.toolchain import ToolLocation
from tests.build.aws_stacks import ROOT, own_checkout
from tests.reports.live import node

pytestmark = pytest.mark.unit


FINE = Finding("zones", "PASS", "two", check="aws ec2 describe-availability-zones --region us-east-1")
OPEN = Finding("role x", "SKIP", "not there yet", check="aws iam get-role --role-name x")
LAB = {
    "name": "lab",
    "cluster": {"kind": "embedded"},
    "pools": [{"name": "whole", "machine": "g4.p4.40g", "nodes": 1}],
    "queues": {"teams": [{"name": "lab", "namespaces": ["lab"], "quota": {"whole": 1}}]},
    "monitoring": {},
}
BROKEN = Finding("quota of P", "FAIL", "too small", "aws service-quotas request", "aws service-quotas get")


START_FOR, SETTLE = ControlPlane.start_for, up_command._settle


class Engine:
    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.found = [FINE]
        self.broken: tuple[str, ...] = ()
        self.namespaces = ("gpu-operator",)
        self.changes = {"create": 3}
        self.refreshed: list[str] = []

    def __call__(
        self, paths: Any, toolchain: Any, say: Any, offline: bool, show_work: Any, only: Any
    ) -> Engine:
        self.offline, self.only = offline, only
        return self

    def up(self, stack: str, policy_packs: Any = (), settle: Any = None, acknowledged: Any = ()) -> Any:
        if self.broken:
            failed = Outcome("up", stack, {}, 1.0, messages=tuple(Message("error", t) for t in self.broken))
            raise EngineFailure(failed, "failed: one (and 1 more)", "x")
        self.made.append({"stack": stack, "offline": self.offline, "packs": list(policy_packs)})
        self.acknowledged = acknowledged
        return Outcome("up", stack, self.changes, 1.0)

    def refresh(self, stack: str, on_event: Any) -> None:
        self.refreshed.append(stack)

    def forget(self, stack: str) -> int:
        return 0

    def export(self, stack: str) -> Any:
        guard = {"type": GUARD, "inputs": {"namespaces": list(self.namespaces)}}
        return {"deployment": {"resources": [guard]}}

    def preview(self, stack: str, on_event: Any, acknowledged: Any) -> None:
        messages = tuple(Message("error", f"namespace {name} is deleted") for name in ("lab", "web"))
        outcome = Outcome("preview", stack, {}, 1.0, messages=messages)
        raise EngineFailure(outcome, "namespace lab is deleted (and 1 more)", "x")

    def run_checks(self, checks: Any, env: Any, paths: Any, stack: str, only: Any = ()) -> Any:
        self.asked.append(stack)
        self.only_checked = only
        return iter(self.found)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(own_checkout(tmp_path / "checkout"))
    found = Engine()
    monkeypatch.setattr("gpuform.cli.up.Engine", found)
    monkeypatch.setattr(preflight, "run_checks", found.run_checks)
    monkeypatch.setattr(ControlPlane, "start_for", lambda *_, **__: None)
    monkeypatch.setattr(up_command, "_measure", lambda *_: None)
    monkeypatch.setattr("lab.rehearse.nodes.apply_nodes", lambda *_: None)
    monkeypatch.setattr("lab.toolchain.Toolchain.ensure", lambda *_, **__: None)
    monkeypatch.setattr(up_command, "_settle", lambda *_: None)
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_up_runs_the_preflight_and_then_the_engine(runs: Engine) -> None:
    runs.found = [FINE, OPEN]
    result = call("up", "aws-dev", "--policy-pack", "policies")
    assert result.exit_code == 0, result.output
    assert runs.asked == ["aws-dev"]
    assert runs.made == [{"stack": "aws-dev", "offline": False, "packs": [Path("policies").resolve()]}]
    lines = result.stdout.splitlines()
    assert "SKIP  role x" in result.stdout
    assert "zones" not in result.stdout
    assert lines[-3:] == [
        "preflight of stack aws-dev: 1 of 2 checks passed, 0 failed",
        "aws-dev costs 0.63 to 3.00 USD an hour; list prices of us-east-1, 2026-07-20",
        "3 created in 1.0 s; 0 s total",
    ]


def test_beside_a_gitops_controller_only_the_nodes_are_checked_and_updated(runs: Engine) -> None:
    result = call("up", "aws-dev", "--only", "nodes,layouts")
    assert result.exit_code == 0, result.output
    assert runs.only == runs.only_checked == ("nodes", "layouts")


@pytest.mark.parametrize(
    ("words", "answer", "code"),
    [("", "yes", 0), ("", "no", 1), ("--yes", "no", 0), ("--offline", "no", 0)],
)
def test_in_a_terminal_the_cost_of_a_cloud_is_agreed_to(
    runs: Engine, monkeypatch: pytest.MonkeyPatch, words: str, answer: str, code: int
) -> None:
    for module in ("output", "up"):
        monkeypatch.setattr(f"gpuform.cli.{module}.has_terminal", lambda: True)
    result = CliRunner().invoke(app, ["up", "aws-dev", *words.split()], input=f"{answer}\n")
    assert (result.exit_code, bool(runs.made)) == (code, code == 0), result.output
    asked = "to 3.00 USD an hour" in result.stdout.split("Type 'yes'")[0] and "Type 'yes'" in result.stdout
    assert asked == (words == "")
    assert ("nothing was changed" in result.stderr) == (code == 1)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("up aws-dev", "cluster.endpoint.public_cidrs[0]: 203.0.113.0/24"),
        ("doctor aws-prod", "cluster.endpoint.public_cidrs[0]: 203.0.113.0/24"),
        ("preflight aws-dev", "cluster.endpoint.public_cidrs[0]: 203.0.113.0/24"),
        ("up openstack-dev --skip-preflight", "gpu_operator.driver_repository: registry.example.org/gpu"),
        ("up onprem-dev", "cluster.control_plane[0].address: 192.0.2.10"),
        ("hosts apply onprem-dev --yes", "cluster.control_plane[0].address: 192.0.2.10"),
        ("hosts check onprem-dev", "cluster.control_plane[0].address: 192.0.2.10"),
        ("hosts verify onprem-dev", "cluster.control_plane[0].address: 192.0.2.10"),
    ],
)
def test_placeholders_of_the_examples_are_refused_for_real_runs(
    runs: Engine, monkeypatch: pytest.MonkeyPatch, command: str, path: str
) -> None:
    monkeypatch.chdir(ROOT)
    result = call(*command.split())
    assert (result.exit_code, runs.asked, runs.made) == (2, [], [])
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert lines[0].startswith(f"error: {path} is a placeholder of the examples")
    assert lines[0].endswith("; replace it by your own (offline runs accept it)")
    assert not lines[1:]


def test_a_live_preview_of_placeholders_is_bad_input_and_says_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    result = call("preview", "aws-prod", "--json")
    assert result.exit_code == 2
    paths = "cluster.admins[0], cluster.admins[1], pools[1].aws.reservations[0]"
    [error] = json.loads(result.stdout)["errors"]
    assert error["fact"] == f"203.0.113.0/24 is a placeholder of the examples, as in {paths}"


def test_an_update_that_trusted_the_state_says_so(runs: Engine) -> None:
    runs.changes = {"create": 3, "same": 2}
    trusting = call("up", "aws-dev", "--skip-preflight").stdout.splitlines()[-2:]
    assert trusting == [
        "3 created, 2 unchanged in 1.0 s; 0 s total",
        "not checked: changes made by hand (`gpuform up aws-dev --refresh` undoes them)",
    ]
    refreshing = call("up", "aws-dev", "--skip-preflight", "--refresh").stdout
    assert refreshing.endswith("2 unchanged in 1.0 s; 0 s total\n")
    assert runs.refreshed == ["aws-dev"]


def test_losses_are_acknowledged_by_option_or_in_the_file(runs: Engine) -> None:
    with Path("Pulumi.aws-dev.yaml").open("a") as file:
        file.write("    acknowledge_loss: [g4dn-shared]\n")
    result = call("up", "aws-dev", "--acknowledge", "lab", "--acknowledge", "web")
    assert result.exit_code == 0, result.output
    assert runs.acknowledged == ("g4dn-shared", "lab", "web")


def test_what_goes_from_the_cluster_is_judged_before_the_cluster_is_touched(runs: Engine) -> None:
    """A new version of the control plane must not be installed when a namespace is then refused."""
    runs.namespaces = ("gpu-operator", "lab")
    refused = call("up", "aws-dev")
    assert (refused.exit_code, runs.made) == (1, [])
    assert refused.stderr == (
        "namespace web is deleted\n"
        "failed: pulumi preview of stack aws-dev: namespace lab is deleted (and 1 more); x\n"
    )


def test_a_failed_check_stops_before_anything_is_made(runs: Engine) -> None:
    runs.found = [FINE, OPEN, BROKEN]
    result = call("up", "aws-dev")
    assert (result.exit_code, runs.made) == (1, [])
    assert "FAIL  quota of P  too small      aws service-quotas request" in result.stdout
    assert "  aws service-quotas get  # quota of P" in result.stdout
    assert "get-role" not in result.stdout  # doctor prints the commands of passed checks
    assert result.stderr == (
        "failed: preflight of stack aws-dev: 1 of 3 checks failed, and nothing was changed; fix them, or "
        "skip the preflight: gpuform up --skip-preflight\n"
    )


def test_the_failure_of_an_update_is_one_line_after_the_printed_errors(runs: Engine) -> None:
    runs.broken = ("one", "two")
    result = call("up", "aws-dev")
    assert result.exit_code == 1
    assert result.stderr == "failed: pulumi up of stack aws-dev: failed: one (and 1 more); x\n"


@pytest.mark.parametrize(("word", "offline"), [("--offline", True), ("--skip-preflight", False)])
def test_preflight_is_skipped_offline_and_on_request(runs: Engine, word: str, offline: bool) -> None:
    runs.found = [BROKEN]
    assert call("up", "aws-dev", word).exit_code == 0
    assert runs.asked == []
    assert runs.made == [{"stack": "aws-dev", "offline": offline, "packs": []}]


def test_a_stack_that_is_not_on_aws_has_no_account(runs: Engine) -> None:
    assert call("up", "onprem-dev").exit_code == 0
    assert (runs.asked, runs.made[0]["stack"]) == ([], "onprem-dev")


@pytest.mark.parametrize("command", ["up", "doctor", "render"])
def test_warnings_of_the_stack_file_are_printed_once(runs: Engine, tmp_path: Path, command: str) -> None:
    result = call(command, "openstack-dev", *(["-o", str(tmp_path / "out")] if command == "render" else []))
    warned = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1, result.stderr
    assert warned[0].startswith("warning: pools[3].elastic: Magnum's Heat driver scales no node group")


class Stopped(Exception):
    """Ends a run where the test has seen enough."""


def stop(*_: Any, **__: Any) -> Any:
    raise Stopped


@pytest.mark.parametrize(
    ("command", "next_step"),
    [
        (("preview", "--offline"), "lab.rehearse.plane.preview_base"),
        (("rehearse",), "lab.rehearse.run.nodes.simulated_nodes"),
    ],
)
def test_previews_and_rehearsals_print_warnings_before_they_begin(
    runs: Engine, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], next_step: str
) -> None:
    monkeypatch.setattr(next_step, stop)
    result = call(*command, "openstack-dev")
    assert isinstance(result.exception, Stopped)
    assert result.stderr.count("warning: pools[3].elastic: ") == 1


@pytest.mark.parametrize(
    ("words", "prometheus", "first"),
    [
        (("lab",), Path("prometheus"), ["kueue", "prepare_monitoring"]),
        (("lab",), None, ["kueue", "define_monitoring_kinds"]),
        (("aws-dev", "--offline"), Path("prometheus"), ["start", "prepare_monitoring", "nodes"]),
    ],
)
def test_what_runs_on_the_embedded_cluster_is_there_before_the_engine(
    runs: Engine, monkeypatch: pytest.MonkeyPatch, words: Any, prometheus: Path | None, first: list[str]
) -> None:
    """Otherwise a release waits five minutes for pods of a program that does not run, or has no cluster."""
    done: list[str] = []
    monkeypatch.setattr(ControlPlane, "start_for", START_FOR)
    located = ToolLocation("prometheus", "3.15.0", "built" if prometheus else "missing", prometheus)
    monkeypatch.setattr("lab.toolchain.Toolchain.locate", lambda *_: located)
    for way in ("start", "start_with_controllers", "prepare_monitoring", "define_monitoring_kinds"):
        does = lambda self, *names, progress, way=way: done.extend(names or [way])  # noqa: E731
        monkeypatch.setattr(ControlPlane, way, does)
    monkeypatch.setattr("lab.rehearse.nodes.apply_nodes", lambda *_: done.append("nodes"))
    monkeypatch.setattr(runs, "export", lambda stack: done.append("engine") or Engine.export(runs, stack))
    Path("Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": {"gpuform:environment": LAB}}))
    assert call("up", *words).exit_code == 0
    assert done == [*first, "engine"]


def test_a_checkout_with_wrong_stack_files(
    runs: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    monkeypatch.chdir(tmp_path)
    assert call("up", "odd").stderr == "error: STACK: unknown stack 'odd'; create one: gpuform init STACK\n"
    (tmp_path / "Pulumi.a b.yaml").touch()
    message = "error: STACK: unknown stack 'odd'; 'Pulumi.a b.yaml': not a valid stack name; rename the file"
    assert call("up", "odd").stderr.startswith(message)
    (tmp_path / "Pulumi.odd.yaml").write_text("config: {'gpuform:environment': {name: odd}}\n")
    for command in ("up", "doctor"):
        result = call(command, "odd")
        assert (result.exit_code, runs.asked, runs.made) == (2, [], [])
        assert result.stderr == (
            "Pulumi.odd.yaml:1:10: cluster: missing; add it\n"
            "Pulumi.odd.yaml:1:10: pools: missing; add it\n2 errors\n"
        )


def test_doctor_shows_the_cause_first_and_what_waits_for_it_in_one_line(runs: Engine) -> None:
    cause = Finding("credentials", "FAIL", "expired", "aws sso login", "aws sts get-caller-identity")
    why = "not checked: see credentials"
    waiting = [Finding(f"zone {n}", "SKIP", why, check=f"aws {n}") for n in range(9)]
    runs.found = [FINE, *waiting, cause]
    result = call("doctor", "aws-dev")
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    failed = [line for line in lines if line.startswith("FAIL")]
    assert lines[1 : len(failed) + 1] == failed
    assert "FAIL credentials expired aws sso login" in failed
    assert [line for line in lines if "see credentials" in line] == [f"SKIP 9 checks {why}"]
    assert "aws sts get-caller-identity # credentials" in lines
    assert not any(line.startswith("aws 1") for line in lines)
    assert re.fullmatch(rf"\d+ of \d+ checks passed, {len(failed)} failed", lines[-1])
    assert len(json.loads(call("doctor", "aws-dev", "--json").stdout)) == int(lines[-1].split()[2])


def test_doctor_of_a_stack_has_the_machine_and_the_account(runs: Engine) -> None:
    runs.found = [FINE, BROKEN]
    result = call("doctor", "aws-dev", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    subjects = [one["subject"] for one in found]
    assert subjects[0] == "python"
    assert "control plane" not in subjects, "its cluster is not on this machine"
    assert [set(one) for one in found] == [{"subject", "verdict", "fact", "fix", "check"}] * len(found)
    assert found[-1] == vars(BROKEN)
    assert call("doctor", "aws-dev").stdout.splitlines()[-4:-1] == [
        "to check by hand:",
        "  aws service-quotas get  # quota of P",
        "  aws ec2 describe-availability-zones --region us-east-1  # zones",
    ]


def test_doctor_without_a_stack_asks_no_account(runs: Engine) -> None:
    (plane,) = (
        one for one in json.loads(call("doctor", "--json").stdout) if one["subject"] == "control plane"
    )
    assert (plane["verdict"], plane["fix"]) == ("SKIP", "gpuform local start")
    assert runs.asked == []


Settles = Callable[..., Result]
OFFERS: dict[str, list[dict[str, str]]] = {
    "t4-shared": [{"gpu.shared": "4"}] * 2,
    "a100-mig": [{"mig-3g.20gb": "1", "mig-2g.10gb": "2"}],
    "a100-7": [{"mig-1g.5gb": "7"}],
    "a100-whole": [{"gpu": "4"}],
    "v100": [{"gpu": "3"}],
    "g4dn-shared": [{"gpu": "3"}],
    "cpu": [{}, {}],
}
"""As planned for the stack local, except three GPUs of four on ``v100-0``."""


@pytest.fixture
def settles(runs: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settles:
    """Runs a command on a cluster with ``OFFERS``, and with annotations of ``v100-0``."""
    runs.changes = {"same": 3}
    for name, value in {"_settle": SETTLE, "SETTLE_S": 0.0, "UNCHANGED_S": 0.0}.items():
        monkeypatch.setattr(up_command, name, value)
    monkeypatch.setattr(up_command, "_write_report", lambda *_: tmp_path / "index.html")

    def run(notes: dict[str, str], *words: str, queues: tuple[QueueStatus, ...] = ()) -> Result:
        nodes = [
            node(f"{pool}-{at}", pool, **own)
            for pool, every in OFFERS.items()
            for at, own in enumerate(every)
        ]
        for one in nodes:
            one["metadata"]["annotations"] = notes if one["metadata"]["name"] == "v100-0" else {}
        found = summarise_status(load(ROOT / "Pulumi.local.yaml"), nodes, [], queues=queues)
        monkeypatch.setattr(up_command, "read_status", lambda *_: found)
        return call(*words)

    return run


@pytest.mark.parametrize("words", [("local", "up"), ("up", "local")])
def test_a_gpu_that_was_broken_is_named_and_not_waited_for(
    runs: Engine, settles: Settles, words: tuple[str, ...]
) -> None:
    result = settles({"simulator.gpuform.io/unhealthy": "1"}, *words)
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "node v100-0 does not offer what was planned, because a fault was injected: GPU 1 is unhealthy: "
        "`gpuform simulate health v100-0 --gpu 1 --ok` clears it\n"
    )
    assert (len(runs.made), runs.refreshed) == (1, [])


def test_what_waits_in_queues_is_said_although_no_pod_is_pending(settles: Settles) -> None:
    """A suspended job has no pods."""
    job = Waiting("lab", "Job", "late", "no quota")
    teams = (QueueStatus("arts", 0, (), (job,)), QueueStatus("lab", 1, (), (job, job)))
    assert settles({}, "up", "local", queues=teams).stdout.splitlines()[-6:-4] == [
        "0 pods, none pending; `gpuform status local` lists them",
        "waiting in queues: 3 workloads; `gpuform status local` says why",
    ]
    assert "waiting in queues" not in settles({}, "up", "local").stdout


def test_what_is_missing_without_a_reason_is_a_failure(runs: Engine, settles: Settles) -> None:
    result = settles({}, "up", "local")
    assert result.exit_code == 1
    assert result.stderr.startswith("failed: pools v100: do not offer what was planned after 0 s; ")
    assert (len(runs.made), runs.refreshed) == (2, ["local"])
