"""Asks Magnum whether what a killed run was making is there; nothing is changed.

Magnum's objects have nothing to carry a mark, so ours is told by what only ours can be: a node group is part
of a cluster that the state has; a cluster or a template has the name, the maker and the arguments in `LOOKS`
of what was being made, and was made after the provider that the state has of that stack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuform.engine.pending import Operation
from gpuform.errors import Failure
from gpuform.openstack.api import Api, Json, moment
from gpuform.openstack.cloud import Cloud, answers
from gpuform.plugins.openstack.clouds import Clouds
from gpuform.recover import state as states
from gpuform.recover.plan import Step, ambiguous

PREFIX = "openstack:"
_CLOCKS = timedelta(minutes=5)  # how far this machine's and the cloud's may differ


@dataclass(frozen=True)
class Look:
    """How one type is looked for: where its list is, and which inputs must be what Magnum has.

    ``same`` are inputs and Magnum's names of them. What Magnum may write otherwise than it was given, as
    networks by name, tells nothing.
    """

    path: Callable[[Mapping[str, Any]], str]
    key: str
    id: Callable[[Mapping[str, Any], str], str]
    same: Mapping[str, str]
    part: bool = False


def _of_cluster(inputs: Mapping[str, Any]) -> str:
    return f"/clusters/{inputs['clusterId']}/nodegroups"


LOOKS: Mapping[str, Look] = {
    "openstack:containerinfra/clusterTemplate:ClusterTemplate": Look(
        lambda inputs: "/clustertemplates",
        "clustertemplates",
        lambda inputs, uuid: uuid,
        {"coe": "coe", "networkDriver": "network_driver", "serverType": "server_type", "public": "public"},
    ),
    "openstack:containerinfra/cluster:Cluster": Look(
        lambda inputs: "/clusters",
        "clusters",
        lambda inputs, uuid: uuid,
        {
            "clusterTemplateId": "cluster_template_id",
            "keypair": "keypair",
            "masterCount": "master_count",
            "flavor": "flavor_id",
            "masterFlavor": "master_flavor_id",
            "createTimeout": "create_timeout",
        },
    ),
    "openstack:containerinfra/nodeGroup:NodeGroup": Look(
        _of_cluster,
        "nodegroups",
        lambda inputs, uuid: f"{inputs['clusterId']}/{uuid}",
        {"flavorId": "flavor_id", "role": "role"},
        part=True,
    ),
}
"""The three types of Magnum's that the program makes; ids as ``pulumi import`` takes them."""


def require_project(stack: str, state: Mapping[str, Any]) -> None:
    """Raise Failure where the credentials are of a project in which the stack has nothing.

    There, whatever is looked for would not be found, and would be made a second time.
    """
    for one in states.resources(state):
        project = (one.get("outputs") or {}).get("projectId")
        if not one["type"].startswith(PREFIX) or not isinstance(project, str) or not project:
            continue
        require_credentials_of(project, stack, _cloud(one, state))
        return


def require_credentials_of(project: str, stack: str, cloud: Cloud) -> None:
    """Raise Failure where the credentials are of another project than the stack's; "" is not known yet."""
    with answers("openstack token issue"):
        mine = str(cloud.session.get_project_id() or "")
    if project and project != mine:
        raise Failure(
            f"stack {stack}",
            f"lies in project {project}, and the credentials are of project {mine}",
            "use credentials of the stack's own project",
        )


def look(operation: Operation, state: Mapping[str, Any]) -> Step:
    """What becomes of one resource that was being made; ``state`` is an export with its secrets.

    Raises Failure where two that could be it are there, and as `gpuform.openstack.cloud.answers`.
    """
    row = LOOKS.get(operation.type)
    if row is None:
        return Step.left(operation, "this type is not one that the program makes")
    inputs = states.plain(operation.resource.get("inputs") or {})
    if not inputs.get("name") or (row.part and not inputs.get("clusterId")):
        return Step.left(operation, "its inputs do not say what it is called, or of which cluster it is")
    cloud = _cloud(operation.resource, state)
    named = _named(Api(cloud.connection), row, inputs, states.ids(state, operation.type))
    if not named:
        return Step.of(operation, "clear", "Magnum has none of this name")
    if row.part:
        foreign = {str(one["uuid"]): _differs(row, inputs, one) for one in named}
    else:
        with answers("openstack token issue"):
            user = str(cloud.session.get_user_id() or "")
        begun = _begun(operation.resource, state)
        foreign = {str(one["uuid"]): _is_not(row, inputs, one, user, begun) for one in named}
    mine = [uuid for uuid, why in foreign.items() if not why]
    if len(mine) > 1:
        raise ambiguous(operation, mine)
    if mine:
        why = (
            "it is in our cluster" if row.part else "its name, maker, moment and arguments are those of ours"
        )
        return Step.of(operation, "import", f"it is there, and {why}", row.id(inputs, mine[0]))
    uuid, why = next(iter(foreign.items()))
    return Step.left(operation, f"{uuid} has its name, and {why}: it is not ours")


def _cloud(resource: Mapping[str, Any], state: Mapping[str, Any]) -> Cloud:
    """The cloud of a resource, by its provider's own settings."""
    inputs = states.plain(resource.get("inputs") or {})
    cloud: Cloud = Clouds(states.provider(state, resource)).of(inputs.get("region")).cloud
    return cloud


def _named(api: Api, row: Look, inputs: Mapping[str, Any], known: Collection[str]) -> list[Json]:
    """Whole objects of that name which the state does not have: a list shows them in short."""
    path = row.path(inputs)
    found = [one for one in api.listed("magnum", path, row.key) if one["name"] == inputs["name"]]
    new = [one for one in found if row.id(inputs, str(one["uuid"])) not in known]
    return [whole for one in new if (whole := api.find("magnum", f"{path}/{one['uuid']}"))]


def _is_not(row: Look, inputs: Mapping[str, Any], one: Json, user: str, begun: datetime | None) -> str:
    """Why it cannot be ours; empty where it can."""
    if one.get("user_id", user) != user:
        return f"user {one['user_id']} made it"
    made = moment(one.get("created_at"))
    if begun and made and made < begun - _CLOCKS:
        return f"it was there before this stack ({made:%Y-%m-%d %H:%M} UTC)"
    return _differs(row, inputs, one)


def _differs(row: Look, inputs: Mapping[str, Any], one: Json) -> str:
    for ours, theirs in row.same.items():
        if ours in inputs and theirs in one and str(inputs[ours]) != str(one[theirs]):
            return f"its {theirs} is {one[theirs]}, ours {inputs[ours]}"
    labels = one.get("labels") or {}
    for key, value in (inputs.get("labels") or {}).items():
        if str(labels.get(key)) != str(value):
            return f"its label {key} is {labels.get(key)}, ours {value}"
    return ""


def _begun(resource: Mapping[str, Any], state: Mapping[str, Any]) -> datetime | None:
    """When the provider that it is made through came into the state: not after its first resource."""
    urn = str(resource.get("provider") or "").rpartition("::")[0]
    made = (one.get("created") for one in states.resources(state) if one["urn"] == urn)
    return moment(next(made, None))
