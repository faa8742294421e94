"""Answers of the simulated AWS that moto lacks: prices, images, reservations.

Each answer is a function of the request's parameters, with the names of the API's. None leaves the request to
moto, with the parameters as the function has changed them.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuform.clients.aws.api import client
from lab.rehearse.cloud.market import Market

ACCOUNT = "123456789012"  # moto's

Json = dict[str, Any]


@dataclass
class Answers:
    """The answers for one region. A method's name is the action."""

    region: str
    zones: tuple[str, ...]
    market: Market
    machines: tuple[str, ...]
    images: dict[str, str] = field(default_factory=dict)
    _asked: threading.Lock = field(default_factory=threading.Lock)

    def get_products(self) -> Json:
        """On-demand prices, in the part of the price list's format that Karpenter reads."""
        rows = [
            json.dumps(
                {
                    "product": {"attributes": {"instanceType": name}},
                    "terms": {
                        "OnDemand": {"1": {"priceDimensions": {"1": {"pricePerUnit": {"USD": str(usd)}}}}}
                    },
                }
            )
            for name, usd in sorted(self.market.listed.items())
        ]
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

    def describe_spot_price_history(self, _: Json) -> Json:
        now = datetime.now(UTC)
        rows = [
            {
                "InstanceType": name,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": str(usd),
                "Timestamp": now,
                "AvailabilityZone": zone,
            }
            for name in self.machines
            for zone in self.zones
            if (usd := self.market.price(name, "spot")) is not None
        ]
        return {"SpotPriceHistory": rows}

    def describe_capacity_reservations(self, asked: Json) -> Json:
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

    def describe_placement_groups(self, _: Json) -> Json:
        """Empty: placement groups belong to node groups, which Karpenter does not manage."""
        return {"PlacementGroups": []}

    def describe_instance_types(self, asked: Json) -> None:
        """Limit moto's answer, AWS's own data, to the catalogue's machines: all types are six megabytes."""
        if not asked.get("DryRun") and not asked.get("InstanceTypes"):
            asked.clear()
            asked["InstanceTypes"] = list(self.machines)

    def describe_instance_type_offerings(self, asked: Json) -> None:
        """Limit moto's answer to the same machines; that a zone does not offer a type is not simulated."""
        asked.pop("MaxResults", None)
        asked["Filters"] = [{"Name": "instance-type", "Values": list(self.machines)}]


def priced(market: Market) -> tuple[str, ...]:
    """EC2 machines with a price, sorted by name."""
    return tuple(
        sorted(name for name, one in market.machines.items() if one.seller == "ec2" and name in market.listed)
    )
