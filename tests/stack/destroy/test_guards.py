"""What a destroy must not do: act on a state or place other than those of its plan, or lose data."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.clouds.aws import api
from gpuform.engine import Engine
from gpuform.kubernetes.client import Unreachable
from gpuform.stack.destroy import Destroy, Options, Plan, Site, inside, proof
from gpuform.stack.destroy import site as sites
from gpuform.stack.destroy.cluster import CLAIM, POD, VOLUME, Cluster
from gpuform.stack.destroy.leftovers import Leftovers, Scope, may_be_asked
from gpuform.stack.destroy.steps import OF_EKS
from gpuform.stack.recover import locks
from infra.config import load
from infra.model.losses import GUARD
from tests.stack.destroy.told_state import AWS, BASE, OUTPUTS, STACK, VPC, PlayedEngine

pytestmark = pytest.mark.unit

HERE = Paths.here()
REGION = load(HERE.root / "Pulumi.aws-dev.yaml").cluster.region  # type: ignore[union-attr]
PROVIDER = AWS.removesuffix("::id")


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def state(region: str = REGION, *more: dict[str, Any]) -> dict[str, Any]:
    provider = {"urn": PROVIDER, "type": "pulumi:providers:aws", "id": "id", "inputs": {"region": region}}
    vpc = {"urn": VPC, "type": "aws:ec2/vpc:Vpc", "custom": True, "id": "vpc-1", "provider": AWS}
    return {"deployment": {"resources": [provider, vpc, *more]}}


def eks(account: str = "42", name: str = "aws-dev") -> dict[str, Any]:
    urn = f"{BASE}aws:eks/cluster:Cluster::c"
    outputs = {**OUTPUTS, "name": name, "arn": f"arn:aws:eks:{REGION}:{account:0>12}:cluster/{name}"}
    return {"urn": urn, "type": "aws:eks/cluster:Cluster", "custom": True, "outputs": outputs}


def aws_site(of: dict[str, Any], **options: Any) -> Site:
    engine = PlayedEngine()
    engine.state = of
    env = load(HERE.root / "Pulumi.aws-dev.yaml")
    return Site(env, HERE, cast(Engine, engine), "aws-dev", Options(**options), say=lambda line: None)


def test_a_file_that_names_another_region_is_refused() -> None:
    """In that region EKS has no such cluster and the VPC no leftovers: both would be taken for an answer."""
    site = aws_site(state("eu-north-1"), offline=True)
    with pytest.raises(
        InputError, match=f"declares region {REGION}, but the stack is in eu-north-1"
    ) as wrong:
        site.plan()
    assert wrong.value.path == "Pulumi.aws-dev.yaml"


def stack_of(name: str) -> dict[str, Any]:
    return {"urn": STACK, "type": "pulumi:pulumi:Stack", "outputs": {"environment": {"name": name}}}


def guard_of(name: str) -> dict[str, Any]:
    return {"urn": f"{BASE}{GUARD}::losses", "type": GUARD, "custom": True, "inputs": {"environment": name}}


@pytest.mark.parametrize(
    "known", [eks(name="lab"), stack_of("lab"), guard_of("lab")], ids=["cluster", "update", "guard"]
)
def test_a_file_that_names_another_cluster_is_refused(known: dict[str, Any]) -> None:
    """Leftovers are found by that name, also once the cluster has left the state."""
    site = aws_site(state(REGION, known), offline=True)
    with pytest.raises(InputError, match="declares the name aws-dev, but the stack's cluster is lab"):
        site.plan()


def test_credentials_of_another_account_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """That account has none of the resources, and the engine would consider all of them deleted."""
    site = aws_site(state(REGION, eks()))
    sts = api.client("sts", REGION)
    monkeypatch.setattr(api, "client", lambda service, region: sts)
    with Stubber(sts) as stubbed:
        stubbed.add_response("get_caller_identity", {"Account": "123456789012"})
        with pytest.raises(
            Failure, match="is in account 000000000042, but the credentials are for account 1"
        ):
            site.plan()


def test_a_state_that_changed_since_it_was_asked_for_is_not_destroyed() -> None:
    site = aws_site(state(), offline=True)
    engine = cast(PlayedEngine, site.engine)
    site.known()
    engine.state = state(REGION, eks())  # another `up` during the question
    with pytest.raises(
        Failure, match="stack aws-dev: its state has changed since the plan; check the plan again"
    ):
        Destroy(site, Plan("aws-dev", "aws", OF_EKS, {})).run()
    assert engine.asked == []


@pytest.mark.parametrize("host", ["ci-7", ""])
def test_a_stack_that_somebody_holds_is_left_alone(host: str, tmp_path: Path) -> None:
    """The engine would refuse, but only after workloads, load balancers, data and nodes are gone."""
    site = aws_site(state(), offline=True)
    cast(PlayedEngine, site.engine).backend = f"file://{tmp_path}"
    lock = {"pid": 2**22 + 1, "hostname": host or socket.gethostname(), "timestamp": "2026-01-02T03:04:05Z"}
    place = tmp_path / ".pulumi/locks/organization/gpuform/aws-dev/0a1b.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(lock))
    with pytest.raises(Failure, match=r"stack aws-dev: is locked by process .*gpuform recover aws-dev"):
        Destroy(site, Plan("aws-dev", "aws", OF_EKS, {})).run()
    assert place.exists()


def test_no_other_run_begins_between_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the engine locks the stack itself; afterwards, while leftovers are deleted, again."""
    site = aws_site(state(), offline=True)
    cast(PlayedEngine, site.engine).backend = f"file://{tmp_path}"
    place = tmp_path / ".pulumi/locks/organization/gpuform/aws-dev"
    seen: dict[str, list[dict[str, Any]]] = {}

    def look(name: str) -> str:
        seen[name] = [json.loads(one.read_text()) for one in place.glob("*.json")]
        return ""

    @contextmanager
    def cluster() -> Iterator[None]:
        yield None

    monkeypatch.setattr(site, "cluster", cluster)
    monkeypatch.setattr(site, "require_empty", lambda: None)
    destroy = Destroy(site, Plan("aws-dev", "aws", OF_EKS, {}))
    for name in ("workloads", "balancers", "volumes", "pools", "classes", "leftovers"):
        monkeypatch.setattr(destroy, f"_{name}", lambda step: look(step.name))
    monkeypatch.setattr(destroy, "_to_the_cluster", lambda: look("cluster"))
    monkeypatch.setattr(destroy, "_network", lambda: look("network"))
    destroy.run()
    assert {name for name, locks in seen.items() if not locks} == {"cluster", "network"}
    (lock,) = seen["workloads"]
    assert (lock["pid"], lock["hostname"]) == (os.getpid(), socket.gethostname())
    assert seen["workloads"] == seen["classes"] != seen["leftovers"]
    assert not list(place.glob("*"))


def test_a_run_that_began_since_the_plan_ends_it(tmp_path: Path) -> None:
    place = locks.Folder(tmp_path)
    theirs = {"pid": 1, "hostname": "ci-7", "timestamp": "2026-01-02T03:04:05Z"}

    class Late(locks.Folder):
        def add(self, content: str) -> str:
            key = super().add(content)
            super().add(json.dumps(theirs))  # written after we looked, and before they saw ours
            return key

    with (
        pytest.raises(Failure, match=r"stack s: is locked by process 1 of .* on host ci-7"),
        locks.holding("s", Late(tmp_path)),
    ):
        pass
    assert [lock.owner and lock.owner.host for lock in place.locks()] == ["ci-7"]


def living(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    client = api.client("eks", REGION)
    monkeypatch.setattr(proof, "client", lambda service, region: client)
    stubbed = Stubber(client)
    if status:
        stubbed.add_response("describe_cluster", {"cluster": {"name": "aws-dev", "status": status}})
    else:
        stubbed.add_client_error("describe_cluster", "ResourceNotFoundException")
    stubbed.activate()


@pytest.mark.parametrize(("status", "swept"), [("ACTIVE", False), ("CREATING", False), ("", True)])
def test_nothing_is_swept_while_eks_has_the_cluster(
    status: str, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state may lack an existing cluster: after `pulumi state delete`, or a killed run."""
    took: list[float] = []

    def sweep(seconds: float, say: Any) -> tuple[()]:
        took.append(seconds)
        return ()

    site = aws_site(state(), offline=True)
    monkeypatch.setattr(site, "leftovers", lambda: SimpleNamespace(sweep=sweep))
    living(monkeypatch, status)
    step = next(one for one in OF_EKS if one.name == "leftovers")
    destroy = Destroy(site, Plan("aws-dev", "aws", OF_EKS, {}))
    if swept:
        assert destroy._leftovers(step) == "none"
    else:
        with pytest.raises(Failure, match=f"EKS still has cluster aws-dev \\({status}\\)"):
            destroy._leftovers(step)
    assert bool(took) is swept


def test_a_group_that_went_meanwhile_is_gone() -> None:
    """EKS deletes its own, and may list it, with its rules, for a while."""
    leftovers = Leftovers(Scope(REGION, "s", "s", "vpc-1"))
    rules = [{"IpProtocol": "-1"}]
    group = {"GroupId": "sg-1", "GroupName": "g", "IpPermissions": rules, "IpPermissionsEgress": rules}
    tagged = {**group, "Tags": [{"Key": "aws:eks:cluster-name", "Value": "s"}]}
    with Stubber(leftovers._ec2) as stubbed:
        stubbed.add_response("describe_security_groups", {"SecurityGroups": [tagged]})
        stubbed.add_client_error("revoke_security_group_ingress", "InvalidGroup.NotFound")
        stubbed.add_client_error("revoke_security_group_egress", "InvalidPermission.NotFound")
        leftovers._close()
        stubbed.assert_no_pending_responses()
        stubbed.add_response("describe_security_groups", {"SecurityGroups": [tagged]})
        stubbed.add_client_error("revoke_security_group_ingress", "UnauthorizedOperation")
        with pytest.raises(Failure, match="UnauthorizedOperation"):
            leftovers._close()


class Volumes:
    """A cluster with one volume, which accepts a change only at the ``after``-th attempt."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.volume: dict[str, Any] = {
            "metadata": {"name": "data"},
            "spec": {"claimRef": {"namespace": "n", "name": "c"}, "persistentVolumeReclaimPolicy": "Delete"},
        }

    def objects(self, kind: Any, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        return [self.volume] if kind is VOLUME else []

    def patch(self, kind: Any, one: Any, body: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.volume["spec"].update(body["spec"])


def test_a_volume_is_kept_only_where_the_cluster_says_so() -> None:
    """A conflicting change is not an API error, but changes nothing."""
    played = Volumes(2)
    inside.keep_volumes(cast(Cluster, played))
    assert played.volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    with pytest.raises(Failure, match="volumes to keep: data would be deleted"):
        inside.keep_volumes(cast(Cluster, Volumes(1000)))


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

    def objects(self, kind: Any, namespace: str = "", **params: str) -> list[dict[str, Any]]:
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
    inside.delete_volumes(cast(Cluster, played), 30, lambda line: None)
    assert not any(played.there.values())
    with pytest.raises(Failure, match=r"destroy: volumes: 1 PersistentVolume left: data after 0\.\d+ s"):
        inside.delete_volumes(cast(Cluster, Storage(after=1000)), 0.3, lambda line: None)
    retained = Storage(after=1, policy="Retain")
    inside.delete_volumes(cast(Cluster, retained), 30, lambda line: None)
    assert len(retained.there[VOLUME]) == 1


def test_a_cluster_that_falls_silent_while_it_is_looked_at_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    site = aws_site(state(), offline=True)

    @contextmanager
    def cluster() -> Iterator[Any]:
        yield object()

    def silent(*asked: Any) -> None:
        raise Unreachable("no answer")

    monkeypatch.setattr(site, "cluster", cluster)
    monkeypatch.setattr(sites, "look_inside", silent)
    with pytest.raises(Failure, match="cluster of aws-dev: no answer; run the same command again"):
        site.plan()


@pytest.mark.parametrize(
    "more",
    [
        {"AWS_ENDPOINT_URL_EC2": "https://ec2.us-east-1.amazonaws.com"},
        {"AWS_ENDPOINT_URL_EKS": "https://eks.us-east-1.amazonaws.com"},
        {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
    ],
)
def test_an_offline_run_does_not_reach_aws_past_its_stand_in(more: dict[str, str]) -> None:
    here = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5000"}
    assert may_be_asked(True, {**here, "AWS_ENDPOINT_URL_STS": "http://localhost:1"})
    assert not may_be_asked(True, {**here, **more})
    assert may_be_asked(False, {**here, **more})


def test_nothing_to_do_is_said_to_programs_in_the_same_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Site, "plan", lambda self: Plan("local", "embedded", OF_EKS, {}))
    done = CliRunner().invoke(app, ["destroy", "local", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert {key: said[key] for key in ("done", "stack", "steps", "swept")} == {
        "done": True,
        "stack": "local",
        "steps": [],
        "swept": [],
    }
