"""Parts of the simulated AWS without its server: the market, user data, and Karpenter's settings."""

from __future__ import annotations

import base64
import json
import threading
import time
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from infra.config import load
from infra.model.base.prices import Cost, PriceList
from infra.model.gpu.machines import MACHINES
from infra.plan import user_data
from infra.plan.eks import karpenter_values
from lab.rehearse.cloud import instances
from lab.rehearse.cloud.answers import Answers
from lab.rehearse.cloud.fleet import Fleets
from lab.rehearse.cloud.instances import Instances
from lab.rehearse.cloud.market import LaunchedInstance, Market
from lab.rehearse.karpenter import Release, environment
from tests.build.aws_environments import aws
from tests.lab.rehearse.fake_cluster import FakeCluster
from tests.waiting import until

pytestmark = pytest.mark.unit

REGION = "us-west-2"
RESERVATION = "cr-0123456789abcdef0"
STACKS = {name: load(Paths.here().root / f"Pulumi.{name}.yaml") for name in ("aws-dev", "aws-prod")}
STACK = STACKS["aws-prod"]
SIM = "simulator.gpuform.io/"
BOTTLEROCKET = '[settings.kernel.sysctl]\n"vm.nr_hugepages" = "5120"\n'


class SlowInstances(Instances):
    """While it lists running instances, another one is sold; later lists fail twice."""

    looks = 0

    def __init__(self, sold: LaunchedInstance | None = None) -> None:
        self.market = Market(STACK, PriceList())
        super().__init__(REGION, self.market, Fleets(REGION, self.market), FakeCluster(), 0.0)
        self.sold = sold

    def _running(self) -> dict[str, str]:
        self.looks += 1
        if self.sold:
            self.market.record_launches([self.sold])
        elif self.looks < 3:
            raise KeyError("i-1")
        return {}


def test_an_instance_that_is_sold_during_a_look_has_not_ended() -> None:
    slow = SlowInstances(
        LaunchedInstance(
            id="i-1",
            machine="p5.48xlarge",
            pool="h100-training",
            zone="us-west-2b",
            capacity="reserved",
            usd_per_hour=55.04,
            launched=time.time() + 60,  # joins later
            reservation=RESERVATION,
        )
    )
    slow.market.set_left(RESERVATION, left=1)
    slow._step()
    assert slow.market.instances()[0].ended is None
    assert slow.market.reservations[0].left == 0  # and is not sold twice


def test_a_look_that_fails_is_said_and_done_again_and_then_forgotten() -> None:
    failing = SlowInstances()
    failing.start()
    try:
        until(lambda: failing.trouble)
        assert tuple(failing.trouble) == ("KeyError: 'i-1'",)
        until(lambda: failing.looks >= 3 and not failing.trouble)
    finally:
        failing.stop()


def test_a_fixed_pool_of_claimed_gpus_has_its_reservation() -> None:
    reserved = {"capacity": ["reserved"], "aws": {"reservations": [RESERVATION]}}
    pool = {"machine": "p5.48xlarge", "nodes": 2, **reserved}
    (held,) = Market(aws({**pool, "sharing": {"kind": "dra"}}), PriceList()).reservations
    assert (held.id, held.total) == (RESERVATION, 3)  # one more during a replacement
    assert not Market(aws(pool), PriceList()).reservations  # a managed node group does not need one


def test_a_pools_own_price_is_listed_where_its_machine_has_none() -> None:
    env = aws({"name": "h200", "machine": "p5e.48xlarge"})
    market = Market(env.model_copy(update={"cost": Cost(prices={"h200": 63.5})}), PriceList())
    assert market.on_demand_prices["p5e.48xlarge"] == 63.5
    assert market.price("p5e.48xlarge", "on-demand") == 63.5


def test_an_alias_is_one_image_for_all_who_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def slow(self: Answers, name: str, architecture: str) -> str:
        time.sleep(0.05)
        made.append(name)
        return f"ami-{len(made)}"

    monkeypatch.setattr(Answers, "_image", slow)
    answers = Answers(REGION, (), Market(STACK, PriceList()))
    asked = ({"Name": "/x/image_id"},)
    asking = [threading.Thread(target=answers.get_parameter, args=asked) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert made == ["/x/image_id"], "another image of one alias is drift, and replaces every node"


def settings(values: object) -> dict[str, str]:
    return environment(Release("kube-system", json.dumps(values)))


@pytest.mark.parametrize(("stack", "reserved"), [("aws-dev", "false"), ("aws-prod", "true")])
def test_the_settings_of_the_shipped_stacks_become_variables(stack: str, reserved: str) -> None:
    expected = {
        "CLUSTER_NAME": stack,
        "INTERRUPTION_QUEUE": stack,
        "EKS_CONTROL_PLANE": "true",
        "FEATURE_GATES": f"NodeOverlay=true,ReservedCapacity={reserved}",
        "SYSTEM_NAMESPACE": "kube-system",
        "CPU_REQUESTS": "1000",
        "MEMORY_LIMIT": str(2**30),
    }
    assert expected.items() <= settings(karpenter_values(STACKS[stack])).items()


def test_a_setting_that_is_left_out_or_empty_has_karpenters_own_default() -> None:
    result = settings({"settings": {"clusterName": "a", "interruptionQueue": "", "reservedENIs": 2}})
    assert result["RESERVED_ENIS"] == "2"
    assert not {"INTERRUPTION_QUEUE", "FEATURE_GATES", "CPU_REQUESTS", "MEMORY_LIMIT"} & set(result)


def test_a_setting_that_would_get_lost_is_refused() -> None:
    with pytest.raises(Failure, match=r"settings\.brandNew: is not supported in a rehearsal"):
        settings({"settings": {"clusterName": "a", "brandNew": True}})


def registered(text: str, adapters: int) -> dict[str, Any]:
    reported = instances.read_user_data(base64.b64encode(text.encode()).decode())
    place = ("node", "i-1", "us-west-2b", REGION)
    return instances.node_manifest(MACHINES["p5.48xlarge"], *place, reported, adapters)


def node_annotations(text: str, adapters: int) -> dict[str, str]:
    result: dict[str, str] = registered(text, adapters)["metadata"]["annotations"]
    return result


def test_a_node_registers_with_the_memory_that_karpenter_assumes_of_its_type() -> None:
    """Karpenter caches it: after a node without capacity, no pod fits the type any more."""
    node = registered("", 0)
    capacity = node["status"]["capacity"]["memory"]
    assert capacity == node["metadata"]["annotations"][f"{SIM}memory-capacity"]
    assert int(capacity.removesuffix("Mi")) == int(2048 * 1024 * (1 - 0.075))


@pytest.mark.parametrize(
    "text",
    [user_data.render(STACK, STACK.pool("h100-training")), BOTTLEROCKET],
    ids=["AL2023", "Bottlerocket"],
)
def test_huge_pages_are_taken_off_the_other_memory(text: str) -> None:
    result, plain = node_annotations(text, 32), node_annotations("", 0)
    assert (result[f"{SIM}efa"], result[f"{SIM}hugepages-2Mi"]) == ("32", "10240Mi")
    left = [int(item[f"{SIM}memory"].removesuffix("Mi")) for item in (result, plain)]
    assert left[1] - left[0] == 10240
    assert plain.keys().isdisjoint({f"{SIM}efa", f"{SIM}hugepages-2Mi"})
