"""Answers of the simulated AWS that moto lacks: prices, images, reservations, types that a file declares.

Each answer is a function of the request's parameters, with the names of the API's. None leaves the request to
moto, with the parameters as the function has changed them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuform.clients.aws.api import client
from infra.model.machines import Machine
from lab.rehearse.cloud.market import Market

ACCOUNT = "123456789012"  # moto's
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}

Json = dict[str, Any]
Answer = Callable[[Json], Json | None]


@dataclass
class Answers:
    """The answers for one region; ``machines`` are the types that it sells."""

    region: str
    zones: Sequence[str]
    market: Market
    machines: Sequence[str]
    images: dict[str, str] = field(default_factory=dict)
    _asked: threading.Lock = field(default_factory=threading.Lock)

    @property
    def of_ec2(self) -> Mapping[str, Answer]:
        """By moto's name of the action."""
        return {
            "describe_spot_price_history": lambda _: {"SpotPriceHistory": list(self._spot_prices())},
            "describe_capacity_reservations": self._reservations,
            # Placement groups belong to node groups, which Karpenter does not manage.
            "describe_placement_groups": lambda _: {"PlacementGroups": []},
            "describe_instance_types": self._types,
            "describe_instance_type_offerings": self._offerings,
        }

    def get_products(self) -> Json:
        """On-demand prices, in the part of the price list's format that Karpenter reads."""
        rows = []
        for name, usd in sorted(self.market.listed.items()):
            terms = {"OnDemand": {"1": {"priceDimensions": {"1": {"pricePerUnit": {"USD": str(usd)}}}}}}
            rows.append(json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms}))
        return {"FormatVersion": "aws_v1", "PriceList": rows}

    def get_parameter(self, asked: Json) -> Json:
        """The image behind an alias; it is registered at the first request."""
        name = str(asked["Name"])
        with self._asked:  # several threads ask; two images of one alias would be drift
            if name not in self.images:
                self.images[name] = self._image(name, "arm64" if "/arm64/" in name else "x86_64")
        return {"Parameter": {"Name": name, "Type": "String", "Value": self.images[name], "Version": 1}}

    def _image(self, name: str, architecture: str) -> str:
        from moto.ec2.models import ec2_backends

        short = name.strip("/").replace("/", "-")[-120:]
        made = client("ec2", self.region).register_image(Name=short, Architecture=architecture)
        found: str = made["ImageId"]
        ec2_backends[ACCOUNT][self.region].amis[found].architecture = architecture  # register_image drops it
        return found

    def _spot_prices(self) -> Iterable[Json]:
        for name in self.machines:
            usd = self.market.price(name, "spot")
            row = {"InstanceType": name, "ProductDescription": "Linux/UNIX", "SpotPrice": str(usd)}
            for zone in self.zones if usd is not None else ():
                yield {**row, "Timestamp": datetime.now(UTC), "AvailabilityZone": zone}

    def _reservations(self, asked: Json) -> Json:
        """The environment's reservations, filtered by id if ids are given."""
        wanted = asked.get("CapacityReservationIds")
        rows = [
            {
                "CapacityReservationId": one.id,
                "OwnerId": ACCOUNT,
                "InstanceType": one.machine,
                "InstancePlatform": "Linux/UNIX",
                "AvailabilityZone": one.zone,
                "Tenancy": "default",
                "TotalInstanceCount": one.total,
                "AvailableInstanceCount": one.left,
                "State": "active",
                "EndDateType": "unlimited",
                "InstanceMatchCriteria": "targeted",
                "ReservationType": "default",
            }
            for one in self.market.reservations
            if not wanted or one.id in wanted
        ]
        return {"CapacityReservations": rows}

    def _types(self, asked: Json) -> None:
        """Limit moto's answer, AWS's own data, to the catalogue's machines: all types are six megabytes."""
        if not asked.get("DryRun") and not asked.get("InstanceTypes"):
            asked.clear()
            asked["InstanceTypes"] = list(self.machines)

    def _offerings(self, asked: Json) -> None:
        """Limit moto's answer to the same machines; that a zone does not offer a type is not simulated."""
        asked.pop("MaxResults", None)
        asked["Filters"] = [{"Name": "instance-type", "Values": list(self.machines)}]


def priced(market: Market) -> tuple[str, ...]:
    """EC2 machines with a price, sorted by name."""
    return tuple(
        sorted(name for name, one in market.machines.items() if one.seller == "ec2" and name in market.listed)
    )


def declare(machines: Iterable[Machine], region: str, zones: Sequence[str]) -> None:
    """Add the types that moto lacks, offered in every zone; where AWS has data of a type, that counts."""
    from moto.ec2.models import instance_types as moto

    sold = moto.INSTANCE_TYPE_OFFERINGS["availability-zone"].setdefault(region, [])
    for machine in machines:
        if machine.name not in moto.INSTANCE_TYPES:
            moto.INSTANCE_TYPES[machine.name] = description(machine)
            moto.InstanceTypeBackend.instance_types.append(moto.InstanceType(machine.name))
            place = {"InstanceType": machine.name, "LocationType": "availability-zone"}
            sold += [{**place, "Location": zone} for zone in zones]


def description(machine: Machine) -> Json:
    """The fields of DescribeInstanceTypes that Karpenter reads.

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
    found: Json = {
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
        storage = {"Disks": disks, "NvmeSupport": "required", "TotalSizeInGB": machine.nvme}
        found["InstanceStorageInfo"] = storage
    if machine.model:
        each = machine.model.memory_mib
        gpus = {"Name": machine.model.name, "Manufacturer": "NVIDIA", "Count": machine.gpus}
        gpus["MemoryInfo"] = {"SizeInMiB": each}
        found["GpuInfo"] = {"Gpus": [gpus], "TotalGpuMemoryInMiB": machine.gpus * each}
    return found
