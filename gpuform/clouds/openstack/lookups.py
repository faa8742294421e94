"""How Magnum's objects are found, and which of them can be the stack's own; read-only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuform.clients.openstack.api import Api, Json, moment
from gpuform.clients.openstack.cloud import Refused
from gpuform.stack.recover import state as states

_CLOCKS = timedelta(minutes=5)  # allowed skew between this machine's clock and the cloud's
CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
_UNREADABLE = 400
"""Magnum's status code for a cluster before its node groups are stored: 0 masters, which its API refuses."""


@dataclass(frozen=True)
class Look:
    """How resources of one type are found: the name of their list, and the inputs that Magnum must match.

    ``same`` maps inputs to Magnum's field names. Fields that Magnum may write differently from the input,
    such as networks by name, are not compared. ``part``: each is part of a cluster.
    """

    key: str
    same: Mapping[str, str]
    part: bool = False

    def path(self, inputs: Mapping[str, Any]) -> str:
        return f"/clusters/{inputs['clusterId']}/{self.key}" if self.part else f"/{self.key}"

    def id(self, inputs: Mapping[str, Any], uuid: str) -> str:
        """As ``pulumi import`` takes it."""
        return f"{inputs['clusterId']}/{uuid}" if self.part else uuid


LOOKS: Mapping[str, Look] = {
    "openstack:containerinfra/clusterTemplate:ClusterTemplate": Look(
        "clustertemplates",
        {"coe": "coe", "networkDriver": "network_driver", "serverType": "server_type", "public": "public"},
    ),
    CLUSTER: Look(
        "clusters",
        {
            "clusterTemplateId": "cluster_template_id",
            "keypair": "keypair",
            "masterCount": "master_count",
            "flavor": "flavor_id",
            "masterFlavor": "master_flavor_id",
            "createTimeout": "create_timeout",
        },
    ),
    NODE_GROUP: Look("nodegroups", {"flavorId": "flavor_id", "role": "role"}, part=True),
}
"""The three Magnum types that the program creates."""


def candidates(api: Api, row: Look, inputs: Mapping[str, Any], known: Collection[str]) -> list[Json]:
    """Complete objects of that name that the state does not have: a list shows only some fields."""
    path = row.path(inputs)
    found = [one for one in api.listed("magnum", path, row.key) if one["name"] == inputs["name"]]
    new = [one for one in found if row.id(inputs, str(one["uuid"])) not in known]
    return [whole for one in new if (whole := find(api, f"{path}/{one['uuid']}"))]


def why_foreign(row: Look, inputs: Mapping[str, Any], one: Json, user: str, begun: datetime | None) -> str:
    """Why it cannot be ours; empty if it can."""
    if one.get("user_id", user) != user:
        return f"user {one['user_id']} created it"
    made = moment(one.get("created_at"))
    if begun and made and made < begun - _CLOCKS:
        return f"it was created before this stack ({made:%Y-%m-%d %H:%M} UTC)"
    return difference(row, inputs, one)


def difference(row: Look, inputs: Mapping[str, Any], one: Json) -> str:
    for ours, theirs in row.same.items():
        if ours in inputs and theirs in one and str(inputs[ours]) != str(one[theirs]):
            return f"its {theirs} is {one[theirs]}, ours is {inputs[ours]}"
    labels = one.get("labels") or {}
    for key, value in (inputs.get("labels") or {}).items():
        if str(labels.get(key)) != str(value):
            return f"its label {key} is {labels.get(key)}, ours is {value}"
    return ""


def stack_created(resource: Mapping[str, Any], state: Mapping[str, Any]) -> datetime | None:
    """When the resource's provider was added to the state: before the stack's first resource."""
    urn = str(resource.get("provider") or "").rpartition("::")[0]
    made = (one.get("created") for one in states.resources(state) if one["urn"] == urn)
    return moment(next(made, None))


def find(api: Api, path: str) -> Json | None:
    """A complete object; None if it does not exist, or only in part."""
    try:
        return api.find("magnum", path)
    except Refused as refused:
        if refused.status == _UNREADABLE:
            return None
        raise
