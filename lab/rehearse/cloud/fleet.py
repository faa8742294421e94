"""CreateFleet: an instance type is chosen as AWS would, by price among the types with capacity.

moto takes the first of the given types, and knows no shortage, no reservation and none of the network
interfaces of a launch template. So the type is chosen here, moto launches it, and the answer is written here,
with errors for missing capacity. To moto, spot and reserved instances are on-demand ones; AWS's fields for
them are added when they are described.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.clouds.aws.api import client
from infra.model import labels
from lab.rehearse.cloud.answers import ACCOUNT, Answer, Form, xml
from lab.rehearse.cloud.market import Bought, CapacityType, Market

_CONFIG = "LaunchTemplateConfigs"
_SHORT = "InsufficientInstanceCapacity"
NODE_POOL = "karpenter.sh/nodepool"


@dataclass(frozen=True)
class Option:
    """One way to fulfil a fleet: a launch template with one of its overrides."""

    template: str
    version: str
    machine: str
    zone: str
    subnet: str
    image: str
    price: float
    reservation: str | None

    def described(self) -> dict[str, Any]:
        overrides = {
            "instanceType": self.machine,
            "subnetId": self.subnet,
            "availabilityZone": self.zone,
            "imageId": self.image,
        }
        template = {"launchTemplateName": self.template, "version": self.version}
        return {"launchTemplateSpecification": template, "overrides": overrides}


class Fleets:
    """Launches in one region; one at a time, so that no capacity is given out twice."""

    def __init__(self, region: str, market: Market) -> None:
        self._region = region
        self._market = market
        self._lock = threading.Lock()
        self.user_data: dict[str, str] = {}  # by instance, in base64
        self.adapters: dict[str, int] = {}  # Elastic Fabric Adapters by instance

    def create(self, form: Form) -> Answer | None:
        """Fulfil a request; None for a dry run, which moto answers."""
        if form.get("DryRun") == "true":
            return None
        with self._lock:
            return self._create(form)

    def _create(self, form: Form) -> Answer:
        left = int(form.get("TargetCapacitySpecification.TotalTargetCapacity", "1"))
        spot = form.get("TargetCapacitySpecification.DefaultTargetCapacityType") == "spot"
        tags = _tags(form, "instance")
        found: list[tuple[Option, list[str]]] = []
        short: list[Option] = []
        for option in sorted(self._options(form), key=lambda one: one.price):
            capacity: CapacityType = "spot" if spot else "reserved" if option.reservation else "on-demand"
            room = self._market.capacity_for(option.machine, option.zone, capacity, option.reservation)
            count = min(room, left)
            if count:
                found.append((option, self._launch(option, count, tags, capacity)))
                left -= count
            elif not room:
                short.append(option)
                self._market.refuse(option.machine, option.zone, capacity)
            if not left:
                break
        lifecycle = "spot" if spot else "on-demand"
        instances = [
            {
                "launchTemplateAndOverrides": option.described(),
                "lifecycle": lifecycle,
                "instanceIds": ids,
                "instanceType": option.machine,
            }
            for option, ids in found
        ]
        errors = [
            {
                "launchTemplateAndOverrides": option.described(),
                "lifecycle": lifecycle,
                "errorCode": "ReservationCapacityExceeded" if option.reservation else _SHORT,
                "errorMessage": f"simulated: no capacity for {option.machine} in {option.zone}",
            }
            for option in short
        ]
        data = {"fleetId": f"fleet-{uuid.uuid4()}", "errorSet": errors, "fleetInstanceSet": instances}
        return xml("CreateFleet", data)

    def _options(self, form: Mapping[str, str]) -> Iterator[Option]:
        keys = re.compile(rf"{_CONFIG}\.(\d+)\.Overrides\.(\d+)\.InstanceType")
        found = sorted((int(m[1]), int(m[2])) for key in form if (m := keys.fullmatch(key)))
        for config, override in found:
            spec = f"{_CONFIG}.{config}.LaunchTemplateSpecification"
            at = f"{_CONFIG}.{config}.Overrides.{override}"
            name, machine = form[f"{spec}.LaunchTemplateName"], form[f"{at}.InstanceType"]
            listed = self._market.price(machine, "on-demand")
            yield Option(
                template=name,
                version=form.get(f"{spec}.Version", "$Latest"),
                machine=machine,
                zone=form.get(f"{at}.AvailabilityZone", ""),
                subnet=form.get(f"{at}.SubnetId", ""),
                image=form.get(f"{at}.ImageId", ""),
                price=float(form.get(f"{at}.Priority", listed if listed is not None else "inf")),
                reservation=_reservation(self._template(name)),
            )

    def _launch(self, option: Option, count: int, tags: dict[str, str], capacity: CapacityType) -> list[str]:
        data = self._template(option.template)
        interfaces = data.get("NetworkInterfaces") or []
        subnet = option.subnet or (interfaces[0].get("SubnetId") if interfaces else None)
        groups = (interfaces[0].get("Groups") if interfaces else None) or data.get("SecurityGroupIds") or []
        answer = client("ec2", self._region).run_instances(
            ImageId=option.image,
            InstanceType=option.machine,
            MinCount=count,
            MaxCount=count,
            SubnetId=subnet,
            SecurityGroupIds=list(groups),
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
            ],
        )
        ids = [one["InstanceId"] for one in answer["Instances"]]
        fabric = [one for one in interfaces if one.get("InterfaceType") in ("efa", "efa-only")]
        self.adapters |= dict.fromkeys(ids, len(fabric))
        self.user_data |= dict.fromkeys(ids, str(data.get("UserData", "")))
        pool = tags.get(labels.POOL, "")
        self._market.sold(
            Bought(
                id=id,
                machine=option.machine,
                pool=pool,
                node_pool=tags.get(NODE_POOL, ""),
                zone=option.zone,
                capacity=capacity,
                usd_per_hour=self._market.price(option.machine, capacity, pool),
                launched=time.time(),
                reservation=option.reservation,
            )
            for id in ids
        )
        return ids

    def _template(self, name: str) -> dict[str, Any]:
        from moto.ec2.models import ec2_backends

        template = ec2_backends[ACCOUNT][self._region].get_launch_template_by_name(name)
        data: dict[str, Any] = template.latest_version().data
        return data


def _reservation(template: Mapping[str, Any]) -> str | None:
    target = (template.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return target.get("CapacityReservationId")


def _tags(form: Mapping[str, str], kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in form.items():
        if key.endswith(".ResourceType") and value == kind:
            at = key.removesuffix("ResourceType") + "Tag."
            pairs = [name for name in form if name.startswith(at) and name.endswith(".Key")]
            found |= {form[name]: form.get(name.removesuffix("Key") + "Value", "") for name in pairs}
    return found
