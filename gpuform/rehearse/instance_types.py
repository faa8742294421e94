"""Our machines, as Karpenter's provider for kwok takes instance types.

What it asks of a node beside its name, zone and way of buying is no requirement of a type there but of an
offering, so that NodePools that choose by GPU find theirs. Its nodes keep 100m of their cores and 10Mi of
their memory back, whatever their size; the rest is for pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuform.rehearse.cloud.joining import memory_mib
from gpuform.rehearse.cloud.market import CapacityType, Market
from infra.model import labels
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.model.machines import MACHINES, Machine
from infra.model.prices import PriceList
from infra.plan.karpenter import EC2_GPUS

KEPT_MIB = 10
DISK = "100Gi"
EFA = "vpc.amazonaws.com/efa"
SOLD: tuple[CapacityType, ...] = ("on-demand", "spot", "reserved")
"""A reserved instance is one more way of buying: nothing here counts how many of a reservation are left."""

Json = dict[str, Any]


def instance_types(env: Environment, prices: PriceList) -> list[Json]:
    """Every machine of EC2's that has a price, in every zone of the cluster and every way of buying.

    A price that the environment gives for a pool is not used: a machine has one price here, whoever buys it.
    """
    market = Market(env, prices)
    return [
        _instance_type(env, market, machine)
        for machine in MACHINES.values()
        if machine.seller == "ec2" and market.price(machine.name, "on-demand") is not None
    ]


def _instance_type(env: Environment, market: Market, machine: Machine) -> Json:
    pods = _pods(env, machine)
    memory = memory_mib(machine, pods) + KEPT_MIB
    resources = {
        # The whole number: it is what a pool's limit counts.
        "cpu": str(machine.vcpu),
        # Not the whole: what the kubelet keeps grows with the pods, and a pod must fit on the node bought.
        "memory": f"{memory}Mi",
        "pods": str(pods),
        "ephemeral-storage": DISK,
    }
    if machine.gpus:
        resources[labels.NVIDIA_GPU] = str(machine.gpus)
    if machine.efa:
        resources[EFA] = str(machine.efa)
    return {
        "name": machine.name,
        "architecture": machine.arch,
        "operatingSystems": ["linux"],
        "resources": resources,
        "offerings": list(_offerings(env, market, machine)),
    }


def _offerings(env: Environment, market: Market, machine: Machine) -> Iterator[Json]:
    assert isinstance(env.cluster, AwsCluster)
    chosen_by = {}
    if machine.gpu and machine.gpu in EC2_GPUS:
        name, memory = EC2_GPUS[machine.gpu]
        chosen_by = {
            labels.INSTANCE_GPU_NAME: name,
            labels.INSTANCE_GPU_COUNT: str(machine.gpus),
            labels.INSTANCE_GPU_MEMORY: str(memory),
        }
    for zone in env.cluster.network.zones:
        for capacity in SOLD:
            own = {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity, **chosen_by}
            yield {
                "Price": market.price(machine.name, capacity),
                "Available": True,
                "Requirements": [
                    {"key": key, "operator": "In", "values": [value]} for key, value in own.items()
                ],
            }


def _pods(env: Environment, machine: Machine) -> int:
    """Of the pools that may have this machine, the most that one says; a type has one number here."""
    users = [pool for pool in env.pools if pool.by_karpenter and machine in pool.machines]
    return max((pool.on_aws.max_pods or machine.pods for pool in users), default=machine.pods)
