"""Instance types that an environment declares, in moto's table of AWS's own data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from infra.model.machines import Machine

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}


def add(machines: Iterable[Machine], region: str, zones: Sequence[str]) -> None:
    """Add the types that moto lacks, offered in every zone; where AWS has data of a type, that counts."""
    from moto.ec2.models import instance_types as moto

    sold = moto.INSTANCE_TYPE_OFFERINGS["availability-zone"].setdefault(region, [])
    for machine in machines:
        if machine.name not in moto.INSTANCE_TYPES:
            moto.INSTANCE_TYPES[machine.name] = description(machine)
            moto.InstanceTypeBackend.instance_types.append(moto.InstanceType(machine.name))
            sold += [
                {"InstanceType": machine.name, "Location": zone, "LocationType": "availability-zone"}
                for zone in zones
            ]


def description(machine: Machine) -> dict[str, Any]:
    """What DescribeInstanceTypes would say, as far as Karpenter reads it.

    Karpenter derives the number of pods from network interfaces: interfaces * (addresses - 1) + 2.
    """
    cards = [
        {
            "NetworkCardIndex": card,
            "InterfaceTypes": ["interface", "efa", "efa-only"] if card < machine.efa else ["interface"],
            "MaximumNetworkInterfaces": 2,
            "NetworkPerformance": "10 Gigabit",
        }
        for card in range(machine.efa or 1)
    ]
    found: dict[str, Any] = {
        "InstanceType": machine.name,
        "BareMetal": False,
        "CurrentGeneration": True,
        "Hypervisor": "nitro",
        "VCpuInfo": {"DefaultVCpus": machine.vcpu},
        "MemoryInfo": {"SizeInMiB": machine.memory * 1024},
        "ProcessorInfo": {"SupportedArchitectures": [_ARCHITECTURES[machine.arch]]},
        "NetworkInfo": {
            "DefaultNetworkCardIndex": 0,
            "MaximumNetworkInterfaces": 1,
            "Ipv4AddressesPerInterface": machine.pods - 1,
            "EfaSupported": bool(machine.efa),
            "EfaInfo": {"MaximumEfaInterfaces": machine.efa},
            "MaximumNetworkCards": len(cards),
            "NetworkCards": cards,
        },
        "SupportedUsageClasses": ["on-demand", "spot"],
        "SupportedVirtualizationTypes": ["hvm"],
        "SupportedRootDeviceTypes": ["ebs"],
        "InstanceStorageSupported": bool(machine.nvme),
    }
    if machine.nvme:
        disks = [{"Count": 1, "SizeInGB": machine.nvme, "Type": "ssd"}]
        found["InstanceStorageInfo"] = {
            "Disks": disks,
            "NvmeSupport": "required",
            "TotalSizeInGB": machine.nvme,
        }
    if machine.model:
        each = {"SizeInMiB": machine.model.memory_mib}
        gpus = {
            "Name": machine.model.name,
            "Manufacturer": "NVIDIA",
            "Count": machine.gpus,
            "MemoryInfo": each,
        }
        total = machine.gpus * machine.model.memory_mib
        found["GpuInfo"] = {"Gpus": [gpus], "TotalGpuMemoryInMiB": total}
    return found
