"""Answers of the simulated AWS that moto lacks: prices, images, reservations.

Each answer is a function of the request's parameters. None leaves the request to moto, with the parameters as
the function has changed them.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from gpuform.clouds.aws.api import client
from lab.rehearse.cloud.market import Market

ACCOUNT = "123456789012"  # moto's
_XMLNS = "http://ec2.amazonaws.com/doc/2016-11-15/"

Form = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    body: bytes
    type: str = "text/xml"


def tags_of(data: Mapping[str, Any]) -> str:
    """XML elements; a list is an EC2 list, its entries ``item``; None is left out."""
    return "".join(f"<{key}>{_value(value)}</{key}>" for key, value in data.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return tags_of(value)
    if isinstance(value, list | tuple):
        return "".join(f"<item>{_value(one)}</item>" for one in value)
    return str(value).lower() if isinstance(value, bool) else escape(str(value))


def xml(action: str, data: Mapping[str, Any]) -> Answer:
    inner = tags_of({"requestId": uuid.uuid4(), **data})
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{_XMLNS}">{inner}</{action}Response>'
    )
    return Answer(text.encode())


def _json(data: Mapping[str, Any]) -> Answer:
    return Answer(json.dumps(data).encode(), "application/x-amz-json-1.1")


def listed(form: Mapping[str, str], prefix: str) -> list[str]:
    """Values of a list parameter: ``InstanceType.1``, ``InstanceType.2``."""
    keys = [key for key in form if key.startswith(f"{prefix}.") and key.removeprefix(f"{prefix}.").isdigit()]
    return [form[key] for key in sorted(keys, key=lambda key: int(key.rsplit(".", 1)[1]))]


@dataclass
class Answers:
    """The answers for one region. A method's name is service and action."""

    region: str
    zones: tuple[str, ...]
    market: Market
    machines: tuple[str, ...]
    images: dict[str, str] = field(default_factory=dict)
    _asked: threading.Lock = field(default_factory=threading.Lock)

    def pricing_getproducts(self, _: Mapping[str, Any]) -> Answer:
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
        return _json({"FormatVersion": "aws_v1", "PriceList": rows})

    def ssm_getparameter(self, asked: Mapping[str, Any]) -> Answer:
        """The image behind an alias; it is registered at the first request."""
        name = str(asked["Name"])
        with self._asked:  # several threads ask; two images of one alias would be drift
            if name not in self.images:
                self.images[name] = self._image(name, "arm64" if "/arm64/" in name else "x86_64")
        return _json(
            {"Parameter": {"Name": name, "Type": "String", "Value": self.images[name], "Version": 1}}
        )

    def _image(self, name: str, architecture: str) -> str:
        from moto.ec2.models import ec2_backends

        short = name.strip("/").replace("/", "-")[-120:]
        made = client("ec2", self.region).register_image(Name=short, Architecture=architecture)
        found: str = made["ImageId"]
        ec2_backends[ACCOUNT][self.region].amis[found].architecture = architecture  # register_image drops it
        return found

    def ec2_describespotpricehistory(self, _: Form) -> Answer:
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        rows = [
            {
                "instanceType": name,
                "productDescription": "Linux/UNIX",
                "spotPrice": self.market.price(name, "spot"),
                "timestamp": now,
                "availabilityZone": zone,
            }
            for name in self.machines
            for zone in self.zones
            if self.market.price(name, "spot") is not None
        ]
        return xml("DescribeSpotPriceHistory", {"spotPriceHistorySet": rows})

    def ec2_describecapacityreservations(self, form: Form) -> Answer:
        """The environment's reservations, filtered by id if ids are given."""
        wanted = listed(form, "CapacityReservationId")
        rows = [
            {
                "capacityReservationId": one.id,
                "ownerId": ACCOUNT,
                "instanceType": one.machine,
                "instancePlatform": "Linux/UNIX",
                "availabilityZone": one.zone,
                "tenancy": "default",
                "totalInstanceCount": one.total,
                "availableInstanceCount": one.left,
                "state": "active",
                "endDateType": "unlimited",
                "instanceMatchCriteria": "targeted",
                "reservationType": "default",
            }
            for one in self.market.reservations
            if not wanted or one.id in wanted
        ]
        return xml("DescribeCapacityReservations", {"capacityReservationSet": rows})

    def ec2_describeplacementgroups(self, _: Form) -> Answer:
        """Empty: placement groups belong to node groups, which Karpenter does not manage."""
        return xml("DescribePlacementGroups", {"placementGroupSet": []})

    def ec2_describeinstancetypes(self, form: Form) -> None:
        """Limit moto's answer, AWS's own data, to the catalogue's machines: all types are six megabytes."""
        if form.get("DryRun") == "true" or listed(form, "InstanceType"):
            return
        _drop(form, ("Filter.", "MaxResults"))
        form.update({f"InstanceType.{index}": name for index, name in enumerate(self.machines, 1)})

    def ec2_describeinstancetypeofferings(self, form: Form) -> None:
        """Limit moto's answer to the same machines; that a zone does not offer a type is not simulated."""
        _drop(form, ("Filter.", "MaxResults"))
        form["Filter.1.Name"] = "instance-type"
        form.update({f"Filter.1.Value.{index}": name for index, name in enumerate(self.machines, 1)})


def _drop(form: Form, prefixes: Iterable[str]) -> None:
    for key in [key for key in form if key.startswith(tuple(prefixes))]:
        del form[key]


def priced(market: Market) -> tuple[str, ...]:
    """EC2 machines with a price, sorted by name."""
    return tuple(
        sorted(name for name, one in market.machines.items() if one.seller == "ec2" and name in market.listed)
    )
