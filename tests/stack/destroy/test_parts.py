"""What a destroy must not do, such as lose data; what the engine does alone, and which proof is required."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure, InputError
from gpuform.cli.main import app
from gpuform.clouds.aws.destroy import EKS_STEPS
from gpuform.clouds.openstack.destroy import MAGNUM_STEPS
from gpuform.engine import EngineFailure
from gpuform.kubernetes.client import Unreachable
from gpuform.kubernetes.cluster import Cluster
from gpuform.kubernetes.kinds import CLAIM, POD, VOLUME
from gpuform.stack.destroy import Destroy, Plan, StackTeardown, cluster_teardown
from gpuform.stack.recover import locks
from tests.engine.conftest import lock
from tests.stack.destroy import engine_state as states
from tests.stack.destroy.engine_state import (
    REGION,
    _credentials,
    aws_state,
    eks,
    engine_of,
    resource,
    retained,
    teardown_of,
)

pytestmark = pytest.mark.unit
__all__ = ["_credentials"]

PLAN = Plan("aws-dev", "aws", EKS_STEPS, {})
LOCKS = ".pulumi/locks/organization/gpuform/aws-dev"


def test_a_state_that_changed_since_it_was_asked_for_is_not_destroyed() -> None:
    target = teardown_of("aws-dev", aws_state(), offline=True)
    engine = engine_of(target)
    target.state()
    engine.state = aws_state(REGION, eks())  # another `up` during the question
    with pytest.raises(Failure, match="stack aws-dev: its state has changed since the plan; check the plan"):
        Destroy(target, PLAN).run()
    assert engine.asked == []


@pytest.mark.parametrize("host", ["ci-7", ""])
def test_a_stack_that_somebody_holds_is_left_alone(host: str, tmp_path: Path) -> None:
    """The engine would refuse, but only after workloads, load balancers, data and nodes are gone."""
    target = teardown_of("aws-dev", aws_state(), offline=True)
    engine_of(target).backend = f"file://{tmp_path}"
    place = lock(tmp_path / LOCKS, 2**22 + 1, host or socket.gethostname())
    with pytest.raises(Failure, match=r"stack aws-dev: is locked by process .*gpuform recover aws-dev"):
        Destroy(target, PLAN).run()
    assert place.exists()


def test_no_other_run_begins_between_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the engine locks the stack itself; afterwards, while leftovers are deleted, again."""
    target = teardown_of("aws-dev", aws_state(), offline=True)
    engine_of(target).backend = f"file://{tmp_path}"
    place = tmp_path / LOCKS
    seen: dict[str, list[dict[str, Any]]] = {}

    def look(name: str) -> str:
        seen[name] = [json.loads(one.read_text()) for one in place.glob("*.json")]
        return ""

    monkeypatch.setattr(target, "open_cluster", nullcontext)
    monkeypatch.setattr(target, "require_empty", lambda: None)
    destroy = Destroy(target, PLAN)
    for name in ("workloads", "run_in_cluster", "volumes", "karpenter", "leftovers"):
        monkeypatch.setattr(destroy, f"_{name}", lambda *asked: look(asked[-1].name))
    monkeypatch.setattr(destroy, "_delete_down_to_cluster", lambda: look("cluster"))
    monkeypatch.setattr(destroy, "_network", lambda: look("network"))
    destroy.run()
    assert {name for name, locks in seen.items() if not locks} == {"cluster", "network"}
    (ours,) = seen["workloads"]
    assert (ours["pid"], ours["hostname"]) == (os.getpid(), socket.gethostname())
    assert seen["workloads"] == seen["classes"] != seen["leftovers"]
    assert not list(place.glob("*"))


def test_a_run_that_began_since_the_plan_ends_it(tmp_path: Path) -> None:
    place = locks.FolderStore(tmp_path)
    theirs = {"pid": 1, "hostname": "ci-7", "timestamp": "2026-01-02T03:04:05Z"}

    class Late(locks.FolderStore):
        def add(self, content: str) -> str:
            key = super().add(content)
            super().add(json.dumps(theirs))  # written after we looked, and before they saw ours
            return key

    with (
        pytest.raises(Failure, match=r"stack s: is locked by process 1 of .* on host ci-7"),
        locks.hold_lock("s", Late(tmp_path)),
    ):
        pass
    assert [lock.owner and lock.owner.host for lock in place.list_locks()] == ["ci-7"]


class Volumes:
    """A cluster with one volume, which accepts a change only at the ``after``-th attempt."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.volume: dict[str, Any] = {
            "metadata": {"name": "data"},
            "spec": {"claimRef": {"namespace": "n", "name": "c"}, "persistentVolumeReclaimPolicy": "Delete"},
        }

    def list_objects(self, kind: Any, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        return [self.volume] if kind is VOLUME else []

    def patch(self, kind: Any, one: Any, body: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.volume["spec"].update(body["spec"])


def test_a_volume_is_kept_only_where_the_cluster_says_so() -> None:
    """A conflicting change is not an API error, but changes nothing."""
    played = Volumes(2)
    cluster_teardown.keep_volumes(cast(Cluster, played))
    assert played.volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    with pytest.raises(Failure, match="volumes to keep: data would be deleted"):
        cluster_teardown.keep_volumes(cast(Cluster, Volumes(1000)))


class Storage:
    """A cluster with a claim in use by its pod, and a volume that is gone after ``after`` polls."""

    def __init__(self, after: int, policy: str = "Delete") -> None:
        self.after = after
        claim = {"metadata": {"namespace": "n", "name": "c"}}
        uses = {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}
        bound = {"claimRef": claim["metadata"], "persistentVolumeReclaimPolicy": policy}
        self.there: dict[Any, list[dict[str, Any]]] = {
            CLAIM: [claim],
            POD: [{"metadata": {"namespace": "n", "name": "p"}, "spec": uses}],
            VOLUME: [{"metadata": {"name": "data"}, "spec": bound}],
        }

    def list_objects(self, kind: Any, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        found = self.there[kind]
        if kind is VOLUME and not self.there[CLAIM] and found:
            self.after -= 1
            if self.after == 0 and found[0]["spec"]["persistentVolumeReclaimPolicy"] == "Delete":
                self.there[VOLUME] = []
        return list(found)

    def delete(self, kind: Any, one: Any) -> None:
        if kind is POD:
            self.there[POD] = self.there[CLAIM] = []


def test_a_deletion_of_volumes_ends_when_no_volume_is_left() -> None:
    """The storage driver deletes the disk after the claim; without the driver it would stay and cost."""
    played = Storage(after=2)
    cluster_teardown.delete_volumes(cast(Cluster, played), 30, lambda line: None)
    assert not any(played.there.values())
    with pytest.raises(Failure, match=r"destroy: volumes: 1 PersistentVolume left: data after 0\.\d+ s"):
        cluster_teardown.delete_volumes(cast(Cluster, Storage(after=1000)), 0.3, lambda line: None)
    retained = Storage(after=1, policy="Retain")
    cluster_teardown.delete_volumes(cast(Cluster, retained), 30, lambda line: None)
    assert len(retained.there[VOLUME]) == 1


def test_a_cluster_that_falls_silent_while_it_is_looked_at_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    target = teardown_of("aws-dev", aws_state(), offline=True)
    silent = Mock(side_effect=Unreachable("no answer"))
    monkeypatch.setattr(target, "open_cluster", lambda: nullcontext(object()))
    monkeypatch.setattr("gpuform.stack.destroy.stack_teardown.read_contents", silent)
    with pytest.raises(Failure, match="cluster of aws-dev: no answer; run the same command again"):
        target.plan()


def test_nothing_to_do_is_said_to_programs_in_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackTeardown, "plan", lambda self: Plan("local", "embedded", EKS_STEPS, {}))
    done = CliRunner().invoke(app, ["destroy", "local", "--json"])
    assert done.exit_code == 0, done.output
    message = json.loads(done.stdout)
    assert (message["done"], message["stack"], message["steps"], message["swept"]) == (True, "local", [], [])


@pytest.mark.parametrize("stack", ["local", "onprem-dev"])
def test_destroy_of_a_stack_without_a_cloud_is_the_engines_alone(stack: str) -> None:
    target = teardown_of(stack)
    asked = engine_of(target).asked
    plan = target.plan()
    text = "\n".join(plan.text_lines())
    assert "6 resources will be deleted, in this order:\n  1. the engine deletes all that it created" in text
    assert ("hosts: what was installed on them" in text) == (stack == "onprem-dev")
    assert asked == [], "a plan changes nothing"
    done = Destroy(target, plan).run()
    assert asked == [()]
    assert [step["did"] for step in done.to_json()["steps"]] == ["8 deleted in 1.0 s"]
    assert "\n".join(target.plan().text_lines()) == f"{stack}: nothing is left to destroy"


NAMESPACE = "kubernetes:core/v1:Namespace"
PROVIDER = f"{states.BASE}pulumi:providers:kubernetes::there-kubernetes"
OF_CLUSTER = resource(PROVIDER, inputs={"kubeconfig": "/theirs", "context": "lab"})
NAMESPACES = [
    resource(f"{states.BASE}{NAMESPACE}::namespaces-{name}", id=name) for name in ("gpu-operator", "lab")
]
PLATFORM = {"deployment": {"resources": [OF_CLUSTER, *NAMESPACES]}}
FOREIGN = {"lab": ["PersistentVolumeClaim data", "Pod theirs"]}
QUEUED = {"science": ["Job lab/runs", "Job lab/held (waits)"], "another-stack-s": ["Job lab/theirs"]}


def on_shared_cluster(monkeypatch: pytest.MonkeyPatch, state: Any, problem: str = "") -> StackTeardown:
    """A stack on a cluster that others use, too: there is something of theirs in ``lab``."""
    cluster = states.PlayedCluster({}, problem, FOREIGN, QUEUED, "onprem-dev")
    states.patch_cluster(monkeypatch, cluster, "/theirs", "lab")
    return teardown_of("onprem-dev", state)


QUEUE = resource(f"{states.BASE}kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::team-science", id="science")
QUEUES = {"deployment": {"resources": [OF_CLUSTER, QUEUE]}}


def test_workloads_of_others_in_the_stack_s_queues_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = on_shared_cluster(monkeypatch, QUEUES).plan()
    assert plan.to_json()["queued"] == ["science: Job lab/runs, Job lab/held (waits)"]
    message = "not created by this stack, but in its queues; without Kueue, what waits stays suspended"
    assert f"{message}:\n  science: Job lab/runs, Job lab/held (waits)\n" in "\n".join(plan.text_lines())


def test_on_a_cluster_of_others_a_namespace_with_their_objects_and_its_volumes_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = on_shared_cluster(monkeypatch, PLATFORM)
    plan = target.plan()
    kept = "lab (PersistentVolumeClaim data, Pod theirs)"
    message = f"namespaces that stay, with what the stack did not create in them:\n  {kept}"
    assert message in "\n".join(plan.text_lines())
    assert plan.to_json()["kept_namespaces"] == [kept]
    assert not engine_of(target).restored
    Destroy(target, plan).run()
    (state,) = engine_of(target).restored
    resources = state["deployment"]["resources"]
    assert [one["id"] for one in resources if one.get("retainOnDelete")] == ["lab"]


@pytest.mark.parametrize("state", [PLATFORM, QUEUES], ids=["namespaces", "queues"])
def test_a_cluster_of_others_that_does_not_answer_ends_it(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = on_shared_cluster(monkeypatch, state, "no route to host")
    with pytest.raises(Failure, match=r"cluster of onprem-dev: cannot be read \(no route to host\)"):
        target.plan()
    assert not engine_of(target).asked


def test_a_run_killed_at_its_very_end_is_ended() -> None:
    """The engine deletes its providers and the stack last; the state has them, but they are not resources."""
    ended = [resource(states.STACK), resource("urn:pulumi:s::gpuform::pulumi:providers:aws::aws")]
    target = teardown_of("local", {"deployment": {"resources": ended}})
    plan = target.plan()
    assert not plan.is_empty
    Destroy(target, plan).run()
    assert engine_of(target).asked == [()]
    assert target.plan().is_empty


def test_releases_that_a_killed_run_had_uninstalled_are_forgotten() -> None:
    messages: list[str] = []
    other = states.RELEASE.replace("karpenter", "monitoring")
    resources = [resource(urn) for urn in (states.RELEASE, other, states.QUEUE)]
    target = teardown_of("local", {"deployment": {"resources": resources}}, messages.append)
    engine_of(target).uninstalled = (states.RELEASE, other)
    assert target.run_engine_destroy((), lambda event: None) == "10 deleted in 3.0 s"
    assert messages == [f"forgets {name}: already uninstalled" for name in ("karpenter", "monitoring")]
    assert retained(engine_of(target).restored[-1]) == [states.RELEASE, other]


def test_what_fails_in_another_way_is_not_forgotten() -> None:
    target = teardown_of("local")
    engine_of(target).uninstalled = (states.POD,)
    with pytest.raises(EngineFailure):
        target.run_engine_destroy((), lambda event: None)
    assert not engine_of(target).restored


def test_destroy_fails_if_the_engine_leaves_resources() -> None:
    with pytest.raises(Failure, match="stack local: still has aws:ec2/vpc:Vpc, "):
        teardown_of("local").require_empty()


@pytest.mark.parametrize("option", ["force", "cluster_gone", "purge"])
def test_options_of_clouds_are_refused_elsewhere(option: str) -> None:
    fact = r"is for (clusters on AWS|stacks that create a cluster at a cloud); local"
    with pytest.raises(InputError, match=fact):
        teardown_of("local", **{option: True}).plan()


def test_destroy_page_lists_the_steps_and_their_limits() -> None:
    text = (states.HERE.root / "docs/howto/destroy.md").read_text()
    rows = re.findall(r"^\| \d\. ([a-z ]+) \| (.+?) \| .+? \| (.+?) \|$", text, re.M)
    steps = (*EKS_STEPS, *MAGNUM_STEPS)
    bounds = [f"{step.timeout_s:g} s" if step.timeout_s else "the provider's" for step in steps]
    assert rows == [(s.name, s.description, bound) for s, bound in zip(steps, bounds, strict=True)]
