"""How Magnum's objects are found, and which of them can be the stack's own; read-only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuform.clients.openstack.api import Api, Json, parse_timestamp
from gpuform.clients.openstack.cloud import OpenstackError
from gpuform.stack.recover import state as states

_CLOCK_SKEW = timedelta(minutes=5)  # allowed skew between this machine's clock and the cloud's
CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
_UNREADABLE = 400
"""Magnum's status code for a cluster before its node groups are stored: 0 masters, which its API refuses."""


@dataclass(frozen=True)
class Lookup:
    """How resources of one type are found: the name of their list, and the inputs that Magnum must match.

    ``fields`` maps inputs to Magnum's field names. Fields that Magnum may write differently from the input,
    such as networks by name, are not compared. ``in_cluster``: each is part of a cluster.
    """

    key: str
    fields: Mapping[str, str]
    in_cluster: bool = False

    def path(self, inputs: Mapping[str, Any]) -> str:
        return f"/clusters/{inputs['clusterId']}/{self.key}" if self.in_cluster else f"/{self.key}"

    def id(self, inputs: Mapping[str, Any], uuid: str) -> str:
        """As ``pulumi import`` takes it."""
        return f"{inputs['clusterId']}/{uuid}" if self.in_cluster else uuid


LOOKUPS: Mapping[str, Lookup] = {
    CLUSTER: Lookup("clusters", {
        "clusterTemplateId": "cluster_template_id", "keypair": "keypair", "masterCount": "master_count",
        "flavor": "flavor_id", "masterFlavor": "master_flavor_id", "createTimeout": "create_timeout",
    }),
    NODE_GROUP: Lookup("nodegroups", {"flavorId": "flavor_id", "role": "role"}, in_cluster=True),
}  # fmt: skip
"""The two Magnum types that the program creates."""


def list_candidates(api: Api, lookup: Lookup, inputs: Json, known: Collection[str]) -> list[Json]:
    """Complete objects of that name that the state does not have: a list shows only some fields."""
    path = lookup.path(inputs)
    named = [item for item in api.list_all("magnum", path, lookup.key) if item["name"] == inputs["name"]]
    new = [item for item in named if lookup.id(inputs, str(item["uuid"])) not in known]
    return [details for item in new if (details := find_object(api, f"{path}/{item['uuid']}"))]


def why_foreign(lookup: Lookup, inputs: Json, item: Json, user: str, not_before: datetime | None) -> str:
    """Why it cannot be ours; empty if it can."""
    if item.get("user_id", user) != user:
        return f"user {item['user_id']} created it"
    created = parse_timestamp(item.get("created_at"))
    if not_before and created and created < not_before - _CLOCK_SKEW:
        return f"it was created before this stack ({created:%Y-%m-%d %H:%M} UTC)"
    return input_difference(lookup, inputs, item)


def input_difference(lookup: Lookup, inputs: Mapping[str, Any], item: Json) -> str:
    for input_name, field in lookup.fields.items():
        if input_name in inputs and field in item and str(inputs[input_name]) != str(item[field]):
            return f"its {field} is {item[field]}, ours is {inputs[input_name]}"
    labels = item.get("labels") or {}
    for key, value in (inputs.get("labels") or {}).items():
        if str(labels.get(key)) != str(value):
            return f"its label {key} is {labels.get(key)}, ours is {value}"
    return ""


def stack_creation_time(resource: Mapping[str, Any], state: Mapping[str, Any]) -> datetime | None:
    """When the resource's provider was added to the state: before the stack's first resource."""
    urn = str(resource.get("provider") or "").rpartition("::")[0]
    times = (item.get("created") for item in states.resources(state) if item["urn"] == urn)
    return parse_timestamp(next(times, None))


def find_object(api: Api, path: str) -> Json | None:
    """A complete object; None if it does not exist, or only in part."""
    try:
        return api.find("magnum", path)
    except OpenstackError as error:
        if error.status == _UNREADABLE:
            return None
        raise
