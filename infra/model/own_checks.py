"""Checks of declared GPUs and machines against the rest of the environment: each is used, and unique."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from infra.model.aws import AwsCluster
from infra.model.errors import InputError
from infra.model.openstack import Flavor, OpenstackCluster
from infra.model.own import OwnGpu, OwnMachine
from infra.model.pool import Pool


def check(
    cluster: Any,
    gpus: Mapping[str, OwnGpu],
    machines: Mapping[str, OwnMachine],
    pools: Sequence[Pool],
) -> None:
    """Refuse entries that no pool uses, and GPUs with the same labels or the same MIG device filter."""
    flavors: Mapping[str, Flavor] = cluster.flavors if isinstance(cluster, OpenstackCluster) else {}
    if machines and isinstance(cluster, OpenstackCluster):
        raise InputError("machines", "Nova's flavors are declared with the cluster", "use cluster.flavors")
    for name in machines if isinstance(cluster, AwsCluster) else ():
        if not re.fullmatch(r"[a-z][a-z0-9-]*\.[a-z0-9-]+", name):
            fact = f"{name!r} is not the name of an EC2 instance type"
            raise InputError(f"machines.{name}", fact, "write it as EC2 does, for example g6.xlarge")
    taken = {one.name for pool in pools for one in (*pool.machines, pool.node_machine) if one}
    for name in machines:
        if name not in taken:
            raise InputError(f"machines.{name}", "no pool uses it", "leave it out")
    used = {gpu.name for pool in pools for gpu in pool.gpus}
    used |= {one.gpu for one in machines.values() if one.gpu} | {
        one.gpu for one in flavors.values() if one.gpu
    }
    products: dict[str, str] = {}
    devices: dict[str, str] = {}
    for name, gpu in gpus.items():
        if name not in used:
            raise InputError(f"gpus.{name}", "no pool and no machine uses it", "leave it out")
        other = products.setdefault(gpu.product, name)
        if other != name:
            fact = f"gpus.{other} has it too, and both would have the same node labels"
            raise InputError(f"gpus.{name}.product", fact, "declare the model once")
        other = devices.setdefault(gpu.pci, name) if gpu.mig else name
        if other != name:
            fact = f"gpus.{other} has it too, and mig-parted selects GPUs by this id"
            raise InputError(f"gpus.{name}.pci", fact, "declare the model once")
