"""A destroy on AWS: which place it acts on, which proof it requires, and what it must not delete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.stub import Stubber

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws import api
from gpuform.clouds.aws import leftovers as proof
from gpuform.clouds.aws.destroy import EKS_STEPS, Eks, eks_cluster, existing_vpc_id, network_urns, vpc_ids
from gpuform.clouds.aws.leftovers import Leftovers, Scope, may_query_aws
from gpuform.stack.destroy import Destroy, Plan
from gpuform.stack.destroy.state import State
from infra.model.base.guard_names import GUARD
from tests.stack.destroy import engine_state as states
from tests.stack.destroy.engine_state import REGION, _credentials, aws_state, eks, teardown_of

pytestmark = pytest.mark.unit
__all__ = ["_credentials"]


def test_a_file_that_names_another_region_is_refused() -> None:
    """In that region EKS has no such cluster and the VPC no leftovers: both would be taken for an answer."""
    target = teardown_of("aws-dev", aws_state("eu-north-1"), offline=True)
    fact = f"declares region {REGION}, but the stack is in eu-north-1"
    with pytest.raises(InputError, match=fact) as wrong:
        target.plan()
    assert wrong.value.path == "Pulumi.aws-dev.yaml"


UPDATED = states.resource(states.STACK, outputs={"environment": {"name": "lab"}})
GUARDED = states.resource(f"{states.BASE}{GUARD}::losses", custom=True, inputs={"environment": "lab"})


@pytest.mark.parametrize("known", [eks(name="lab"), UPDATED, GUARDED], ids=["cluster", "update", "guard"])
def test_a_file_that_names_another_cluster_is_refused(known: dict[str, Any]) -> None:
    """Leftovers are found by that name, also once the cluster has left the state."""
    target = teardown_of("aws-dev", aws_state(REGION, known), offline=True)
    with pytest.raises(InputError, match="declares the name aws-dev, but the stack's cluster is lab"):
        target.plan()


def test_credentials_of_another_account_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """That account has none of the resources, and the engine would consider all of them deleted."""
    target = teardown_of("aws-dev", aws_state(REGION, eks()))
    sts = api.create_client("sts", REGION)
    monkeypatch.setattr(api, "create_client", lambda service, region: sts)
    with Stubber(sts) as stubbed:
        stubbed.add_response("get_caller_identity", {"Account": "123456789012"})
        fact = "is in account 000000000042, but the credentials are for account 1"
        with pytest.raises(Failure, match=fact):
            target.plan()


def stub_cluster_status(
    monkeypatch: pytest.MonkeyPatch, status: str, code: str = "ResourceNotFoundException"
) -> None:
    client, real = api.create_client("eks", REGION), proof.create_client
    monkeypatch.setattr(
        proof, "create_client", lambda name, region: client if name == "eks" else real(name, region)
    )
    stubbed = Stubber(client)
    if status:
        stubbed.add_response("describe_cluster", {"cluster": {"name": "aws-dev", "status": status}})
    else:
        stubbed.add_client_error("describe_cluster", code)
    stubbed.activate()


@pytest.mark.parametrize(("status", "swept"), [("ACTIVE", False), ("CREATING", False), ("", True)])
def test_nothing_is_swept_while_eks_has_the_cluster(
    status: str, swept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state may lack an existing cluster: after `pulumi state delete`, or a killed run."""
    swept_for: list[float] = []
    sweeper = SimpleNamespace(sweep=lambda seconds, say: swept_for.append(seconds) or ())
    target = teardown_of("aws-dev", aws_state(), offline=True)
    monkeypatch.setattr(target.teardown, "leftovers", lambda known: sweeper)
    stub_cluster_status(monkeypatch, status)
    step = next(step for step in EKS_STEPS if step.name == "leftovers")
    destroy = Destroy(target, Plan("aws-dev", "aws", EKS_STEPS, {}))
    if swept:
        assert destroy._leftovers(step) == "none"
    else:
        with pytest.raises(Failure, match=f"EKS still has cluster aws-dev \\({status}\\)"):
            destroy._leftovers(step)
    assert bool(swept_for) is swept


def test_security_group_that_is_gone_is_no_error() -> None:
    """EKS deletes its own, and may list it, with its rules, for a while."""
    leftovers = Leftovers(Scope(REGION, "s", "s", "vpc-1"))
    rules = [{"IpProtocol": "-1"}]
    group = {"GroupId": "sg-1", "GroupName": "g", "IpPermissions": rules, "IpPermissionsEgress": rules}
    tagged = {**group, "Tags": [{"Key": "aws:eks:cluster-name", "Value": "s"}]}
    with Stubber(leftovers._ec2) as stubbed:
        stubbed.add_response("describe_security_groups", {"SecurityGroups": [tagged]})
        stubbed.add_client_error("revoke_security_group_ingress", "InvalidGroup.NotFound")
        stubbed.add_client_error("revoke_security_group_egress", "InvalidPermission.NotFound")
        leftovers.prepare()
        stubbed.assert_no_pending_responses()
        stubbed.add_response("describe_security_groups", {"SecurityGroups": [tagged]})
        stubbed.add_client_error("revoke_security_group_ingress", "UnauthorizedOperation")
        with pytest.raises(Failure, match="UnauthorizedOperation"):
            leftovers.prepare()


@pytest.mark.parametrize(
    ("here", "more"),
    [
        (True, {}),
        (True, {"AWS_ENDPOINT_URL_STS": "http://localhost:1"}),
        (False, {"AWS_ENDPOINT_URL": "https://ec2.us-east-1.amazonaws.com"}),
        (False, {"AWS_ENDPOINT_URL_EC2": "https://ec2.us-east-1.amazonaws.com"}),
        (False, {"AWS_ENDPOINT_URL_EKS": "https://eks.us-east-1.amazonaws.com"}),
        (False, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
    ],
)
def test_offline_run_asks_only_a_local_endpoint(here: bool, more: dict[str, str]) -> None:
    given = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5000", **more}
    assert may_query_aws(True, given) is here
    assert may_query_aws(False, given)
    assert not may_query_aws(True, {})


def test_an_offline_run_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with pytest.raises(InputError, match="needs proof from EKS, which an offline run cannot get"):
        teardown_of("aws-dev", offline=True, cluster_gone=True).plan()


def test_only_the_cluster_s_own_account_proves_that_it_is_gone(moto: str) -> None:
    assert "EKS has no cluster s" in proof.require_gone("s", "123456789012", REGION)
    with pytest.raises(InputError, match="are for account 123456789012, but the cluster was in 42"):
        proof.require_gone("s", "42", REGION)


def test_refused_query_proves_nothing(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stub_cluster_status(monkeypatch, "", code="AccessDeniedException")
    with pytest.raises(Failure, match=r"AccessDeniedException: .*; this does not prove"):
        proof.require_gone("s", "123456789012", REGION)


def test_an_existing_vpc_is_known_and_its_component_stays_until_the_end() -> None:
    """Nothing else in the state names the VPC, in which the cluster's leftovers are then deleted."""
    urn = states.NETWORK.replace("gpuform:aws:Network", "gpuform:aws:ExistingVpc")
    vpc = states.resource(urn, parent=states.STACK, outputs={"vpc_id": "vpc-7"})
    stack, queue = states.resource(states.STACK), states.resource(states.QUEUE, provider="")
    known = State.from_state({"deployment": {"resources": [stack, vpc, queue]}})
    assert (existing_vpc_id(known), vpc_ids(known)) == ("vpc-7", ())
    assert network_urns(known) == (urn,)
    known = State.from_state(states.STATE)
    assert existing_vpc_id(known) == ""
    assert eks_cluster(known) == Eks("s", "https://e", "Y2E=", "42")
    assert (vpc_ids(known), network_urns(known)) == (("vpc-1",), (states.NETWORK, states.VPC))
