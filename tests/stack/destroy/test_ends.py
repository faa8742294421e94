"""``gpuform destroy`` of a stack on AWS: asks first, waits with a limit, reports what blocks it, and ends."""

from __future__ import annotations

import time

import pytest
import yaml

from gpuform.clients.aws.api import create_client
from tests.fakes.moto import REGION, Account
from tests.stack.destroy.conftest import POOL, STACK, Small, answer
from tests.stack.destroy.played_karpenter import PlayedKarpenter, service, volume

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

ORDER = (
    "[workloads] none left",
    "[load balancers] none left",
    "[volumes] kept: vol-data (default/data)",
    "[pools] none left",
    "[classes] none left",
    "deleted   Release karpenter-controller",
    "deleted   aws:eks/nodeGroup:NodeGroup system-system",
    "deleted   aws:eks/accessEntry:AccessEntry aws-small-admin-111122223333:role/gpu-admins",
    "deleted   aws:eks/cluster:Cluster aws-small-cluster",
    "[leftovers] deleted ",
)


@pytest.fixture
def karpenter(small: Small, account: Account) -> PlayedKarpenter:
    return small.karpenter(account)


@pytest.fixture
def launched(small: Small, account: Account, karpenter: PlayedKarpenter) -> list[str]:
    small.up()
    return karpenter.launch(POOL, 2, account.subnet)


def test_a_destroy_from_the_question_to_the_end(
    small: Small, account: Account, karpenter: PlayedKarpenter, launched: list[str]
) -> None:
    """One stack, destroyed repeatedly: it stops where it must, and the same command continues."""
    made = len(small.resources())
    small.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([service("shop"), *volume("data")]))
    _only_asks(small)
    assert "deletionTimestamp" not in small.kubectl("get", "nodepools,services", "-A", "-o", "yaml")
    _force_is_refused_while_karpenter_lives(small, karpenter)
    with karpenter.living():  # the load balancer is deleted, and Karpenter dies
        small.kubectl("delete", "service", "shop")
    _says_that_karpenter_is_dead(small, launched)
    assert len(small.resources()) == made, "the engine has not begun"

    ours = {account.cni_interface(), account.interface({}, f"Amazon EKS {STACK}")}
    orphan = account.instance(account.karpenter_tags)
    others = account.instance({"eks:eks-cluster-name": "other"}, account.other_subnet)
    group = account.group("eks-cluster-sg", {"aws:eks:cluster-name": STACK})
    elsewhere, within = account.cni_interface(subnet=account.other_subnet), account.cni_interface("other")
    with karpenter.living():
        stopped = small.destroy("--yes", code=1)
    places = [stopped.stdout.index(line) for line in ORDER]
    assert places == sorted(places)
    assert not ours & account.interfaces()
    assert {elsewhere, within} <= account.interfaces()
    assert group not in account.groups()
    assert account.running() == {others}
    assert orphan in stopped.stdout
    assert small.ours() == []
    kept = small.kubectl("get", "pv", "data", "-o", "jsonpath={.spec.persistentVolumeReclaimPolicy}")
    assert kept == "Retain"

    assert "VPC of aws-small: the cluster is gone, but its VPC still has" in stopped.stderr
    assert f"{within} (available, 'aws-K8S-i-0123456789abcdef0', cluster.k8s.amazonaws.com/name=other" in (
        stopped.stderr
    )
    assert {one["type"] for one in small.resources() if one["type"].startswith("aws:eks")} == set()
    account.ec2.delete_network_interface(NetworkInterfaceId=within)
    ended = answer(small.destroy("--yes", "--json"))
    assert ended["done"]
    assert [step["name"] for step in ended["steps"]][-2:] == ["leftovers", "network"]
    assert small.resources() == []
    assert elsewhere in account.interfaces()
    assert "nothing is left to destroy" in small.destroy().stdout


def _only_asks(small: Small) -> None:
    shown = small.destroy(code=1)
    for part in (
        "not created by this stack, but in its cluster, so deleted with it:\n  Service default/shop",
        "volumes: data that stays at AWS, to be deleted by hand:\n  vol-data (default/data)",
        f"NodePools:\n  {POOL}",
    ):
        assert part in shown.stdout
    assert "nothing was done; 'gpuform destroy aws-small --yes' does it" in shown.stderr


def _force_is_refused_while_karpenter_lives(small: Small, karpenter: PlayedKarpenter) -> None:
    karpenter.lease()
    refused = small.destroy("--yes", "--force", code=2)
    assert "--force: Karpenter is running (karpenter-0_played is the leader, as of" in refused.stderr
    karpenter.release_lease()


def _says_that_karpenter_is_dead(small: Small, launched: list[str]) -> None:
    began = time.monotonic()
    failed = small.destroy("--yes", "--wait", "2", code=1)
    assert time.monotonic() - began < 300  # the step's own limit is 20 minutes
    for name in launched:
        assert f"{name} (finalizer karpenter.sh/termination)" in failed.stderr
    for part in (
        "destroy: NodePools and NodeClaims: 2 NodeClaims left: ",
        "Karpenter, which must terminate them, is not running (no Deployment kube-system/karpenter",
        "restore Karpenter and run the same command again, or, if it cannot be restored, run with --force",
    ):
        assert part in failed.stderr


def test_force_ends_what_karpenter_would_have_ended(
    small: Small, account: Account, karpenter: PlayedKarpenter, launched: list[str]
) -> None:
    """With Karpenter dead; a foreign finalizer is not removed."""
    managed = account.instance({"eks:nodegroup-name": "system", **account.karpenter_tags})
    hold = '{"metadata":{"finalizers":["karpenter.sh/termination","example.com/audit"]}}'
    small.kubectl("patch", "nodeclaim", launched[0], "--type=merge", "-p", hold)
    held = small.destroy("--yes", "--force", "--wait", "2", code=1)
    assert f"1 NodeClaim left: {launched[0]} (finalizer example.com/audit)" in held.stderr
    for name in launched:
        assert f"[pools] --force: terminates instance {karpenter.instances[name]}" in held.stdout
    assert account.running() == {managed}, "node groups are EKS's to end"
    free = '{"metadata":{"finalizers":null}}'
    small.kubectl("patch", "nodeclaim", launched[0], "--type=merge", "-p", free)
    small.destroy("--yes", "--force")
    assert small.ours() == []
    assert small.resources() == []
    assert account.running() == set(), "swept, once the cluster was gone"


def test_a_cluster_that_is_gone_is_forgotten_on_proof_alone(small: Small, account: Account) -> None:
    if not small.made:
        small.up()
    small.engine.restore(STACK, small.made)
    made = len(small.resources())
    leaked, foreign = account.cni_interface(), account.cni_interface(subnet=account.other_subnet)
    answers = small.destroy("--yes", "--cluster-gone", code=2)
    assert "--cluster-gone: the cluster answers at https://127.0.0.1:" in answers.stderr
    small.plane.stop()

    silent = small.destroy("--yes", code=1)
    assert "cluster aws-small of aws-small: does not answer (" in silent.stderr
    assert "if it is gone, run with --cluster-gone, which asks EKS for proof first" in silent.stderr
    eks = create_client("eks", REGION)
    subnets = {"subnetIds": [account.subnet]}
    eks.create_cluster(name=STACK, roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig=subnets)
    there = small.destroy("--yes", "--cluster-gone", code=2)
    assert "--cluster-gone: EKS still has cluster aws-small (ACTIVE)" in there.stderr
    assert len(small.resources()) == made

    eks.delete_cluster(name=STACK)
    ended = small.destroy("--yes", "--cluster-gone")
    assert "EKS has no cluster aws-small in us-east-1, account 123456789012" in ended.stdout
    assert "from the state, releases included" in ended.stdout
    assert "Release" not in ended.stdout.partition("releases included")[2]
    assert small.resources() == []
    assert leaked not in account.interfaces()
    assert foreign in account.interfaces()
