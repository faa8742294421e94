"""Parts around the played AWS: this process's environment, its thread, its records, an existing VPC."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpuform.clients.aws.api import create_client
from infra.config import load, parse
from infra.model.base.prices import Cost, PriceList
from infra.plan import karpenter
from lab.rehearse.cloud import account
from lab.rehearse.cloud.account import create_account
from lab.rehearse.cloud.answers import Answers
from lab.rehearse.cloud.instances import Instances
from lab.rehearse.cloud.market import LaunchedInstance, Market
from lab.rehearse.cloud.server import Cloud, aws_environment
from tests.components.aws_stacks import small
from tests.components.test_existing_vpc import BY_ID, BY_TAG, IDS, VPC
from tests.lab.rehearse.fake_cluster import FakeCluster
from tests.plan.aws_environments import aws
from tests.waiting import until

pytestmark = pytest.mark.tools


STACK = Path(__file__).parents[3] / "Pulumi.aws-prod.yaml"
ID = "cr-0123456789abcdef0"


PLANE = FakeCluster()


def test_a_start_that_fails_leaves_no_server_and_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no queue")

    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setattr(Cloud, "_reset", lambda self: None)
    monkeypatch.setattr(account, "create_account", broken)
    before, threads = dict(os.environ), set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no queue"), Cloud(load(STACK), PriceList(), PLANE):
        pass
    assert dict(os.environ) == before
    until(lambda: set(threading.enumerate()) <= threads)  # those of other tests may end meanwhile


def test_it_is_there_as_long_as_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cloud, "_reset", lambda self: None)
    monkeypatch.setattr(account, "create_account", lambda env: None)
    monkeypatch.setattr(Instances, "_running", lambda self: {})
    before, threads = dict(os.environ), threading.active_count()
    with Cloud(load(STACK), PriceList(), PLANE) as cloud:
        assert os.environ["AWS_ENDPOINT_URL"] == cloud.url
        assert threading.active_count() == threads + 2
        with socket.create_connection(("127.0.0.1", int(cloud.url.rpartition(":")[2])), timeout=5):
            pass
    assert dict(os.environ) == before
    until(lambda: threading.active_count() == threads)


def test_nothing_of_the_callers_own_aws_or_proxy_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_EC2"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("NO_PROXY", "intern")
    monkeypatch.delenv("no_proxy", raising=False)
    before = dict(os.environ)
    with aws_environment({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}):
        assert {name for name in os.environ if name.startswith("AWS_")} == {"AWS_ENDPOINT_URL"}
        assert os.environ["NO_PROXY"] == "intern,127.0.0.1"
        assert os.environ["no_proxy"] == "127.0.0.1"
    assert dict(os.environ) == before


def bought(id: str, reservation: str | None = None) -> LaunchedInstance:
    return LaunchedInstance(
        id=id,
        machine="p5.48xlarge",
        pool="h100-training",
        zone="us-west-2b",
        capacity="reserved",
        usd_per_hour=55.04,
        launched=time.time() + 60,  # joins later
        reservation=reservation,
    )


class Slow(Instances):
    """While it lists running instances, another one is sold."""

    def __init__(self, market: Market, sold: LaunchedInstance) -> None:
        super().__init__("us-west-2", market, {}, PLANE, 0.0)
        self.launched: LaunchedInstance | None = sold

    def _running(self) -> dict[str, str]:
        if self.launched:
            self._market.record_launches([self.launched])
            self.launched = None
            return {}
        return {"i-1": "10.0.0.4"}


def test_what_is_sold_during_a_look_has_not_ended() -> None:
    market = Market(load(STACK), PriceList())
    market.set_left(ID, left=1)
    instances = Slow(market, bought("i-1", ID))
    instances._step()
    assert market.instances()[0].ended is None
    assert market.reservations[0].left == 0  # and is not sold twice


class Stumbling(Instances):
    """The first two calls fail with an unexpected error."""

    looks = 0

    def _running(self) -> dict[str, str]:
        self.looks += 1
        if self.looks < 3:
            raise KeyError("i-1")
        return {}


def test_a_look_that_fails_is_said_and_done_again_and_then_forgotten() -> None:
    instances = Stumbling("us-west-2", Market(load(STACK), PriceList()), {}, PLANE, 0.0)
    instances.start()
    try:
        until(lambda: instances.trouble)
        assert tuple(instances.trouble) == ("KeyError: 'i-1'",)
        until(lambda: instances.looks >= 3 and not instances.trouble)
    finally:
        instances.stop()


def test_a_fixed_pool_of_claimed_gpus_has_its_reservation() -> None:
    pool = {"machine": "p5.48xlarge", "nodes": 2, "capacity": ["reserved"], "aws": {"reservations": [ID]}}
    (held,) = Market(aws({**pool, "sharing": {"kind": "dra"}}), PriceList()).reservations
    assert (held.id, held.total) == (ID, 3)  # one more during a replacement
    assert not Market(aws(pool), PriceList()).reservations  # a managed node group does not need one


def test_a_pools_own_price_is_listed_where_its_machine_has_none() -> None:
    env = aws({"name": "h200", "machine": "p5e.48xlarge"})
    env = env.model_copy(update={"cost": Cost(prices={"h200": 63.5})})
    market = Market(env, PriceList())
    assert market.on_demand_prices["p5e.48xlarge"] == 63.5
    assert market.price("p5e.48xlarge", "on-demand") == 63.5


def test_an_alias_is_one_image_for_all_who_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def slow(self: Answers, name: str, architecture: str) -> str:
        time.sleep(0.05)
        made.append(name)
        return f"ami-{len(made)}"

    monkeypatch.setattr(Answers, "_image", slow)
    answers = Answers("us-west-2", (), Market(load(STACK), PriceList()), ())
    asking = [
        threading.Thread(target=answers.get_parameter, args=({"Name": "/x/image_id"},)) for _ in range(4)
    ]
    for item in asking:
        item.start()
    for entry in asking:
        entry.join()
    assert made == ["/x/image_id"], "another image of one alias is drift, and replaces every node"


ELASTIC = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 16}}}


@pytest.mark.parametrize("network", [BY_ID, BY_TAG], ids=["by id", "by tag"])
def test_the_subnets_have_the_ids_in_karpenters_class(moto: str, network: dict[str, Any]) -> None:
    """The offline AWS plugin answers for the subnets of tags, and the account has what it answered."""
    from lab.offline.aws.functions import assumed_subnet

    env = parse(small(ELASTIC, network=network))
    create_account(env)
    ec2 = create_client("ec2", "us-west-2")
    listed = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [VPC]}])["Subnets"]
    ids = {item["AvailabilityZone"]: item["SubnetId"] for item in listed}
    tags = BY_TAG["subnets"]["tags"]  # type: ignore[index]
    assert ids == (IDS if network is BY_ID else {zone: assumed_subnet(VPC, zone, tags) for zone in IDS})
    spec = karpenter.ec2_node_class(env, env.pools[0], "role", env.name, ids)["spec"]
    requests = [term["id"] for term in spec["subnetSelectorTerms"]]
    assert sorted(requests) == sorted(ids.values())


def test_discovery_by_tag_finds_no_subnet(moto: str) -> None:
    """As at AWS, where the owner has not tagged them: an EC2NodeClass that selects by tag gets no node."""
    create_account(parse(small(ELASTIC, network=BY_ID)))
    tagged = [{"Name": "tag:karpenter.sh/discovery", "Values": ["*"]}]
    assert create_client("ec2", "us-west-2").describe_subnets(Filters=tagged)["Subnets"] == []


def test_subnets_of_a_new_vpc_are_found_by_tag(moto: str) -> None:
    create_account(parse(small(ELASTIC)))
    tagged = [{"Name": "tag:karpenter.sh/discovery", "Values": ["labs"]}]
    result = create_client("ec2", "us-west-2").describe_subnets(Filters=tagged)["Subnets"]
    assert len(result) == 3
    assert not {item["SubnetId"] for item in result} & {*IDS.values()}
