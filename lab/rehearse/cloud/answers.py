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
from functools import cached_property
from typing import Any

from gpuform.clients.aws.api import create_client
from infra.model.gpu.machines import Machine
from lab.rehearse.cloud.market import Market

ACCOUNT = "123456789012"  # moto's
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "arm64"}

Json = dict[str, Any]
Answer = Callable[[Json], Json | None]


@dataclass
class Answers:
    """The answers for one region."""

    region: str
    zones: Sequence[str]
    market: Market
    images: dict[str, str] = field(default_factory=dict)
    _image_lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """The types that it sells: EC2 machines with a price, sorted by name."""
        machines, prices = self.market.machines, self.market.on_demand_prices
        return tuple(sorted(name for name in machines if machines[name].seller == "ec2" and name in prices))

    @property
    def ec2_actions(self) -> Mapping[str, Answer]:
        """By moto's name of the action."""
        return {
            "describe_spot_price_history": lambda _: {"SpotPriceHistory": list(self._spot_prices())},
            "describe_capacity_reservations": self._reservations,
            # Placement groups belong to node groups, which Karpenter does not manage.
            "describe_placement_groups": lambda _: {"PlacementGroups": []},
            "describe_instance_types": self._limit_types,
            "describe_instance_type_offerings": self._limit_offerings,
        }

    def get_products(self) -> Json:
        """On-demand prices, in the part of the price list's format that Karpenter reads."""
        rows = []
        for name, usd in sorted(self.market.on_demand_prices.items()):
            terms = {"OnDemand": {"1": {"priceDimensions": {"1": {"pricePerUnit": {"USD": str(usd)}}}}}}
            rows.append(json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms}))
        return {"FormatVersion": "aws_v1", "PriceList": rows}

    def get_parameter(self, params: Json) -> Json:
        """The image behind an alias; it is registered at the first request."""
        name = str(params["Name"])
        with self._image_lock:  # several threads ask; two images of one alias would be drift
            if name not in self.images:
                self.images[name] = self._image(name, "arm64" if "/arm64/" in name else "x86_64")
        return {"Parameter": {"Name": name, "Type": "String", "Value": self.images[name], "Version": 1}}

    def _image(self, name: str, architecture: str) -> str:
        from moto.ec2.models import ec2_backends

        short = name.strip("/").replace("/", "-")[-120:]
        image = create_client("ec2", self.region).register_image(Name=short, Architecture=architecture)
        image_id: str = image["ImageId"]
        images = ec2_backends[ACCOUNT][self.region].amis
        images[image_id].architecture = architecture  # register_image drops it
        return image_id

    def _spot_prices(self) -> Iterable[Json]:
        for name in self.machines:
            usd = self.market.price(name, "spot")
            row = {"InstanceType": name, "ProductDescription": "Linux/UNIX", "SpotPrice": str(usd)}
            for zone in self.zones if usd is not None else ():
                yield {**row, "Timestamp": datetime.now(UTC), "AvailabilityZone": zone}

    def _reservations(self, params: Json) -> Json:
        """The environment's reservations, filtered by id if ids are given."""
        wanted = params.get("CapacityReservationIds")
        rows = [
            {
                "CapacityReservationId": reservation.id,
                "OwnerId": ACCOUNT,
                "InstanceType": reservation.machine,
                "InstancePlatform": "Linux/UNIX",
                "AvailabilityZone": reservation.zone,
                "Tenancy": "default",
                "TotalInstanceCount": reservation.total,
                "AvailableInstanceCount": reservation.left,
                "State": "active",
                "EndDateType": "unlimited",
                "InstanceMatchCriteria": "targeted",
                "ReservationType": "default",
            }
            for reservation in self.market.reservations
            if not wanted or reservation.id in wanted
        ]
        return {"CapacityReservations": rows}

    def _limit_types(self, params: Json) -> None:
        """Limit moto's answer, AWS's own data, to the catalogue's machines: all types are six megabytes."""
        if not params.get("DryRun") and not params.get("InstanceTypes"):
            params.clear()
            params["InstanceTypes"] = list(self.machines)

    def _limit_offerings(self, params: Json) -> None:
        """Limit moto's answer to the same machines; that a zone does not offer a type is not simulated."""
        params.pop("MaxResults", None)
        params["Filters"] = [{"Name": "instance-type", "Values": list(self.machines)}]


def add_machine_types(machines: Iterable[Machine], region: str, zones: Sequence[str]) -> None:
    """Add the types that moto lacks, offered in every zone; where AWS has data of a type, that counts."""
    from moto.ec2.models import instance_types as moto

    offerings = moto.INSTANCE_TYPE_OFFERINGS["availability-zone"].setdefault(region, [])
    for machine in machines:
        if machine.name not in moto.INSTANCE_TYPES:
            moto.INSTANCE_TYPES[machine.name] = describe_machine(machine)
            moto.InstanceTypeBackend.instance_types.append(moto.InstanceType(machine.name))
            place = {"InstanceType": machine.name, "LocationType": "availability-zone"}
            offerings += [{**place, "Location": zone} for zone in zones]


def describe_machine(machine: Machine) -> Json:
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
    answer: Json = {
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
        answer["InstanceStorageInfo"] = storage
    if machine.model:
        mib = machine.model.memory_mib
        gpus = {"Name": machine.model.name, "Manufacturer": "NVIDIA", "Count": machine.gpus}
        gpus["MemoryInfo"] = {"SizeInMiB": mib}
        answer["GpuInfo"] = {"Gpus": [gpus], "TotalGpuMemoryInMiB": machine.gpus * mib}
    return answer
