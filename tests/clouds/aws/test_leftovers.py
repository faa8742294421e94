"""What is deleted after a cluster, and what never is."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from gpuform.clouds.aws.leftovers import Leftovers, Scope, vpc_id_by_tag
from gpuform.stack.destroy.waiting import StillExists
from tests.fakes.moto import REGION, Account

pytestmark = pytest.mark.tools

NAME = "research"


@pytest.fixture
def account(moto: str) -> Account:
    return Account(NAME)


def leftovers(account: Account) -> Leftovers:
    return Leftovers(Scope(REGION, NAME, NAME, account.vpc))


def test_leaked_resources_are_deleted_and_foreign_ones_stay(account: Account) -> None:
    ours = {
        account.cni_interface(),
        account.interface({}, f"Amazon EKS {NAME}"),
        account.interface({"gpuform.io/environment": NAME}),
    }
    foreign = {
        account.cni_interface(cluster=f"{NAME}-2"),
        account.interface({}, "another's"),
        account.interface({}, f"Amazon EKS {NAME}-2"),
        account.cni_interface(subnet=account.other_subnet),  # our name, another VPC
    }
    instance = account.instance({**account.karpenter_tags, "karpenter.sh/nodepool": "t4"})
    others = {
        account.instance({"eks:eks-cluster-name": f"{NAME}-2"}),
        account.instance({f"kubernetes.io/cluster/{NAME}": "shared"}),
        account.instance(account.karpenter_tags, account.other_subnet),
    }
    said: list[str] = []
    taken = {one.id for one in leftovers(account).sweep(20, said.append)}
    assert taken == ours | {instance}
    assert not ours & account.interfaces()
    assert foreign <= account.interfaces()
    assert account.running() == others
    assert any("3 network interfaces left" in line for line in said)
    assert leftovers(account).sweep(5, said.append) == ()


def test_groups_that_name_each_other_are_deleted(account: Account) -> None:
    tag = {f"kubernetes.io/cluster/{NAME}": "owned"}
    one = account.group("k8s-elb-1", tag)
    two = account.group("eks-cluster-sg", {"aws:eks:cluster-name": NAME})
    account.allow_ingress(one, two)
    account.allow_ingress(two, one)
    kept = {
        account.group("endpoints", {"gpuform.io/environment": NAME}),  # the engine's own
        account.group("theirs", {"aws:eks:cluster-name": "other"}),
        account.group("elsewhere", tag, account.other_vpc),
    }
    taken = {found.id for found in leftovers(account).sweep(20, print)}
    assert taken == {one, two}
    assert kept <= account.groups()
    assert not {one, two} & account.groups()


def test_an_interface_in_use_is_no_leftover_and_is_named(account: Account) -> None:
    instance = account.instance({"Name": "bastion"})
    used = account.cni_interface()
    account.ec2.attach_network_interface(NetworkInterfaceId=used, InstanceId=instance, DeviceIndex=1)
    unknown = account.interface({"team": "search"}, "a bastion's")
    found = leftovers(account)
    assert used not in {one.id for one in found.find()}
    described = {one.id: one.why for one in found.foreign()}
    assert "'a bastion's', team=search" in described[unknown]
    assert {one.id for one in found.foreign(unused=True)} == {unknown}


def test_undeletable_group_is_named_with_its_reason(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = account.group("held", {"aws:eks:cluster-name": NAME})
    found = leftovers(account)
    said = {"Error": {"Code": "DependencyViolation", "Message": "resource has a dependent object"}}

    def held(**asked: str) -> None:
        raise ClientError(said, "DeleteSecurityGroup")

    monkeypatch.setattr(found._ec2, "delete_security_group", held)
    why = rf"1 security group left: {group} \(DependencyViolation: "
    with pytest.raises(StillExists, match=why) as still:
        found.sweep(0.5, lambda line: None)
    assert still.value.seconds == 0.5


def test_the_vpc_of_an_environment_is_found_by_our_tag(account: Account) -> None:
    assert vpc_id_by_tag(REGION, NAME) == account.vpc
    assert vpc_id_by_tag(REGION, "missing") == ""


def test_a_shared_vpc_loses_only_the_clusters_own(account: Account) -> None:
    """The VPC and its subnets stay, so a foreign interface blocks nothing, and stays, too."""
    ours, foreign = account.cni_interface(), account.interface({}, "foreign")
    shared = Leftovers(Scope(REGION, NAME, NAME, account.vpc, shared=True))
    assert {one.id for one in leftovers(account).foreign()} == {foreign}
    assert shared.foreign() == shared.foreign(unused=True) == ()
    assert {one.id for one in shared.sweep(20, lambda text: None)} == {ours}
    assert foreign in account.interfaces()
    left = account.ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [account.vpc]}])["Subnets"]
    assert [one["SubnetId"] for one in left] == [account.subnet]
