"""CreateFleet: an instance type is chosen as AWS would, by price among the types with capacity.

moto takes the first of the given types, and knows no shortage, no reservation and none of the network
interfaces of a launch template. So the type is chosen here, moto launches it, and the answer is written here,
with errors for missing capacity. To moto, spot and reserved instances are on-demand ones; how an instance was
bought is noted at moto's record of it, from which it answers DescribeInstances.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from gpuform.clients.aws.api import create_client
from infra.model.base import labels
from lab.rehearse.cloud.answers import ACCOUNT, Json
from lab.rehearse.cloud.market import CapacityType, LaunchedInstance, Market

_SHORT = "InsufficientInstanceCapacity"
_OVERRIDES = ("InstanceType", "SubnetId", "AvailabilityZone", "ImageId")


class Fleets:
    """Launches in one region; one at a time, so that no capacity is given out twice."""

    def __init__(self, region: str, market: Market) -> None:
        self._region = region
        self._market = market
        self._lock = threading.Lock()
        self.user_data: dict[str, str] = {}  # by instance, in base64
        self.adapters: dict[str, int] = {}  # Elastic Fabric Adapters by instance

    def create(self, params: Json) -> Json | None:
        """Fulfil a request; None for a dry run, which moto answers."""
        if params.get("DryRun"):
            return None
        with self._lock:
            return self._create(params)

    def _create(self, params: Json) -> Json:
        target = params["TargetCapacitySpecification"]
        left, spot = int(target["TotalTargetCapacity"]), target.get("DefaultTargetCapacityType") == "spot"
        tag_sets = [
            item["Tags"] for item in params["TagSpecifications"] if item["ResourceType"] == "instance"
        ]
        tags = {tag["Key"]: tag.get("Value", "") for tag_set in tag_sets for tag in tag_set}
        instances, errors = [], []
        for _, template, reservation in sorted(self._options(params), key=itemgetter(0)):
            option = template["Overrides"]
            machine, zone = option["InstanceType"], option["AvailabilityZone"]
            capacity: CapacityType = "spot" if spot else "reserved" if reservation else "on-demand"
            free = self._market.capacity_for(machine, zone, capacity, reservation)
            result = {"LaunchTemplateAndOverrides": template, "Lifecycle": "spot" if spot else "on-demand"}
            if count := min(free, left):
                ids = self._launch(template, count, tags, capacity, reservation)
                instances.append({**result, "InstanceIds": ids, "InstanceType": machine})
                left -= count
            elif not free:
                code = "ReservationCapacityExceeded" if reservation else _SHORT
                text = f"simulated: no capacity for {machine} in {zone}"
                errors.append({**result, "ErrorCode": code, "ErrorMessage": text})
                self._market.record_refusal(machine, zone, capacity)
            if not left:
                break
        return {"FleetId": f"fleet-{uuid.uuid4()}", "Errors": errors, "Instances": instances}

    def _options(self, params: Json) -> Iterator[tuple[float, Json, str | None]]:
        """Each launch template with one of its overrides: its price, itself, and its reservation."""
        for config in params["LaunchTemplateConfigs"]:
            spec = config["LaunchTemplateSpecification"]
            name = spec["LaunchTemplateName"]
            template = {"LaunchTemplateName": name, "Version": spec.get("Version", "$Latest")}
            for override in config["Overrides"]:
                usd = self._market.price(override["InstanceType"], "on-demand")
                option = {key: override.get(key, "") for key in _OVERRIDES}
                yield (
                    float(override.get("Priority", usd if usd is not None else "inf")),
                    {"LaunchTemplateSpecification": template, "Overrides": option},
                    _reservation(self._template(name)),
                )

    def _launch(
        self,
        template: Json,
        count: int,
        tags: dict[str, str],
        capacity: CapacityType,
        reservation: str | None,
    ) -> list[str]:
        option = template["Overrides"]
        data = self._template(template["LaunchTemplateSpecification"]["LaunchTemplateName"])
        machine, interfaces = option["InstanceType"], data.get("NetworkInterfaces") or []
        first = interfaces[0] if interfaces else {}
        answer = create_client("ec2", self._region).run_instances(
            ImageId=option["ImageId"],
            InstanceType=machine,
            MinCount=count,
            MaxCount=count,
            SubnetId=option["SubnetId"] or first.get("SubnetId"),
            SecurityGroupIds=list(first.get("Groups") or data.get("SecurityGroupIds") or []),
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
            ],
        )
        ids = [instance["InstanceId"] for instance in answer["Instances"]]
        self._note(ids, capacity, reservation)
        fabric = [item for item in interfaces if item.get("InterfaceType") in ("efa", "efa-only")]
        self.adapters |= dict.fromkeys(ids, len(fabric))
        self.user_data |= dict.fromkeys(ids, str(data.get("UserData", "")))
        pool = tags.get(labels.POOL, "")
        self._market.record_launches(
            LaunchedInstance(
                id=id,
                machine=machine,
                pool=pool,
                zone=option["AvailabilityZone"],
                capacity=capacity,
                usd_per_hour=self._market.price(machine, capacity, pool),
                launched=time.time(),
                reservation=reservation,
            )
            for id in ids
        )
        return ids

    def _note(self, ids: list[str], capacity: CapacityType, reservation: str | None) -> None:
        """moto answers with the fields of its record that have the names of the API's, in snake case."""
        for instance in map(self._backend.get_instance, ids):
            if capacity == "spot":
                instance.instance_lifecycle = "spot"
                instance.spot_instance_request_id = f"sir-{instance.id[2:10]}"
            if capacity == "reserved":
                instance.capacity_reservation_id = reservation
                only = {"CapacityReservationPreference": "capacity-reservations-only"}
                instance.capacity_reservation_specification = only

    @property
    def _backend(self) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[ACCOUNT][self._region]

    def _template(self, name: str) -> dict[str, Any]:
        template = self._backend.get_launch_template_by_name(name)
        data: dict[str, Any] = template.latest_version().data
        return data


def _reservation(template: Mapping[str, Any]) -> str | None:
    target = (template.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return target.get("CapacityReservationId")
