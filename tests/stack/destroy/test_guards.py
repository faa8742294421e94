"""What a destroy must not do: act on a state or place other than those of its plan, or lose data."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure
from gpuform.cli.main import app
from gpuform.clouds.aws.destroy import EKS_STEPS
from gpuform.kubernetes.client import Unreachable
from gpuform.kubernetes.cluster import Cluster
from gpuform.kubernetes.kinds import CLAIM, POD, VOLUME
from gpuform.stack.destroy import Destroy, Plan, StackTeardown, cluster_teardown
from gpuform.stack.recover import locks
from tests.engine.conftest import lock
from tests.stack.destroy.engine_state import REGION, _credentials, aws_state, eks, engine_of, teardown_of

pytestmark = pytest.mark.unit
__all__ = ["_credentials"]

LOCKS = ".pulumi/locks/organization/gpuform/aws-dev"


def test_a_state_that_changed_since_it_was_asked_for_is_not_destroyed() -> None:
    target = teardown_of("aws-dev", aws_state(), offline=True)
    engine = engine_of(target)
    target.state()
    engine.state = aws_state(REGION, eks())  # another `up` during the question
    with pytest.raises(
        Failure, match="stack aws-dev: its state has changed since the plan; check the plan again"
    ):
        Destroy(target, Plan("aws-dev", "aws", EKS_STEPS, {})).run()
    assert engine.asked == []


@pytest.mark.parametrize("host", ["ci-7", ""])
def test_a_stack_that_somebody_holds_is_left_alone(host: str, tmp_path: Path) -> None:
    """The engine would refuse, but only after workloads, load balancers, data and nodes are gone."""
    target = teardown_of("aws-dev", aws_state(), offline=True)
    engine_of(target).backend = f"file://{tmp_path}"
    place = lock(tmp_path / LOCKS, 2**22 + 1, host or socket.gethostname())
    with pytest.raises(Failure, match=r"stack aws-dev: is locked by process .*gpuform recover aws-dev"):
        Destroy(target, Plan("aws-dev", "aws", EKS_STEPS, {})).run()
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

    @contextmanager
    def cluster() -> Iterator[None]:
        yield None

    monkeypatch.setattr(target, "open_cluster", cluster)
    monkeypatch.setattr(target, "require_empty", lambda: None)
    destroy = Destroy(target, Plan("aws-dev", "aws", EKS_STEPS, {}))
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

    @contextmanager
    def cluster() -> Iterator[Any]:
        yield object()

    def silent(*asked: Any) -> None:
        raise Unreachable("no answer")

    monkeypatch.setattr(target, "open_cluster", cluster)
    monkeypatch.setattr("gpuform.stack.destroy.stack_teardown.read_contents", silent)
    with pytest.raises(Failure, match="cluster of aws-dev: no answer; run the same command again"):
        target.plan()


def test_nothing_to_do_is_said_to_programs_in_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackTeardown, "plan", lambda self: Plan("local", "embedded", EKS_STEPS, {}))
    done = CliRunner().invoke(app, ["destroy", "local", "--json"])
    assert done.exit_code == 0, done.output
    message = json.loads(done.stdout)
    assert (message["done"], message["stack"], message["steps"], message["swept"]) == (True, "local", [], [])
