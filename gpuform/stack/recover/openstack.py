"""Checks at Magnum whether a resource that a killed run was creating exists; read-only.

Magnum's objects cannot carry a tag, so ours are recognised by what only ours can have: a node group is part
of a cluster in the state; a cluster or a template has the name, the creator and the arguments (`LOOKS`) of
the interrupted create, and was created after the stack's provider in the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from gpuform.checkout.errors import Failure, InputError
from gpuform.clouds.openstack.api import Api, Json, moment
from gpuform.clouds.openstack.cloud import Cloud, Refused, answers, connect
from gpuform.engine.pending import UPDATING, Operation
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import FOR_YOU, Does, Step, ambiguous

PREFIX = "openstack:"
T = TypeVar("T")
_CLOCKS = timedelta(minutes=5)  # allowed skew between this machine's clock and the cloud's
_BEGINS_S = 60.0
"""Seconds that Magnum's conductor may take to begin what its API has accepted: the limit of its own RPC calls
(oslo.messaging's rpc_response_timeout, 60 s)."""
_LOOK_S = 1.0
CLUSTER = "openstack:containerinfra/cluster:Cluster"
NODE_GROUP = "openstack:containerinfra/nodeGroup:NodeGroup"
_AT_WORK_S = 3600.0
"""Seconds to wait for Magnum if the program sets no limit (the provider's own: 60 minutes)."""
_UNREADABLE = 400
"""Magnum's status code for a cluster before its node groups are stored: 0 masters, which its API refuses."""


@dataclass(frozen=True)
class Look:
    """How resources of one type are found: the path of their list, and the inputs that Magnum must match.

    ``same`` maps inputs to Magnum's field names. Fields that Magnum may write differently from the input,
    such as networks by name, are not compared.
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
    CLUSTER: Look(
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
    NODE_GROUP: Look(
        _of_cluster,
        "nodegroups",
        lambda inputs, uuid: f"{inputs['clusterId']}/{uuid}",
        {"flavorId": "flavor_id", "role": "role"},
        part=True,
    ),
}
"""The three Magnum types that the program creates; ids as ``pulumi import`` takes them."""


def require_project(stack: str, state: Mapping[str, Any]) -> None:
    """Raise Failure if the credentials are of a project in which the stack has nothing.

    There, no resource would be found, and each would be created a second time.
    """
    for one in states.resources(state):
        project = (one.get("outputs") or {}).get("projectId")
        if not one["type"].startswith(PREFIX) or not isinstance(project, str) or not project:
            continue
        require_credentials_of(project, stack, _cloud(one, state))
        return


def require_credentials_of(project: str, stack: str, cloud: Cloud) -> None:
    """Raise Failure if the credentials are of another project; "" means that the stack's is not known yet."""
    with answers("openstack token issue"):
        mine = str(cloud.session.get_project_id() or "")
    if project and project != mine:
        raise Failure(
            f"stack {stack}",
            f"is in project {project}, but the credentials are for project {mine}",
            "use credentials of the stack's own project",
        )


def look(operation: Operation, state: Mapping[str, Any]) -> Step:
    """How to resolve one interrupted create; ``state`` is an export with its secrets.

    What Magnum does not list is looked for as long as Magnum may take to begin it. Raises Failure if two
    resources match, and the errors of `gpuform.clouds.openstack.cloud.answers`.
    """
    row = LOOKS.get(operation.type)
    if row is None:
        return Step.left(operation, "the program does not create this type")
    inputs = states.plain(operation.resource.get("inputs") or {})
    if not inputs.get("name") or (row.part and not inputs.get("clusterId")):
        return Step.left(operation, "its inputs have no name or no cluster")
    cloud = _cloud(operation.resource, state)
    api, known = Api(cloud.connection), states.ids(state, operation.type)
    named = _until(lambda: _named(api, row, inputs, known), bool)
    if not named:
        return Step.of(operation, "clear", "Magnum has none with this name")
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
        why = "it is in our cluster" if row.part else "its name, creator, creation time and arguments match"
        [live] = [one for one in named if str(one["uuid"]) == mine[0]]
        return _judged(operation, live, "import", f"it exists, and {why}", row.id(inputs, mine[0]))
    uuid, why = next(iter(foreign.items()))
    return Step.left(operation, f"{uuid} has its name, but {why}, so it is not ours")


def again(operation: Operation, state: Mapping[str, Any], does: Does = "refresh") -> Step:
    """How to resolve a resource that the state has and that is to be read again, by ``does``.

    Reasons: the provider gave up waiting for it (it polls at once, before Magnum has begun: Delay 0 of its
    StateChangeConf, and takes what is not stored yet for deleted); or a run was killed that had requested an
    update from Magnum; or a new kubeconfig is wanted, for the provider keeps the one that it has. Errors as
    `look`.
    """
    said = "inputs" if operation.kind == UPDATING else "outputs"
    declared = states.plain(operation.resource.get(said) or {})
    there = [one for one in states.resources(state) if one["urn"] == operation.urn]
    path = _path(next(iter(there), operation.resource))  # a pending update has no id of its own
    api = Api(_cloud(operation.resource, state).connection)

    def begun(live: Json | None) -> bool:
        wanted = declared.get("nodeCount") if operation.type == NODE_GROUP else None
        if live is None or wanted in (None, live.get("node_count")):
            return live is not None
        return _busy(live) or str(live.get("status")).endswith("_FAILED")

    live = _until(lambda: _found(api, path), begun)
    if live is None:
        return Step.of(operation, "refresh", "Magnum no longer has it")
    return _judged(operation, live, does, f"Magnum reports {live.get('status')}")


def clusters(state: Mapping[str, Any]) -> list[Operation]:
    """The clusters that can get a new kubeconfig. Raises InputError if the stack has none."""
    found = [one for one in states.resources(state) if one["type"] == CLUSTER and one.get("id")]
    if not found:
        raise InputError("--renew-kubeconfig", "the stack has no Magnum cluster", "leave it out")
    return [Operation("renewing", one) for one in found]


def ended(resource: Mapping[str, Any], state: Mapping[str, Any], say: Callable[[str], None]) -> str:
    """Wait until Magnum has deleted a resource; returns why it still exists, empty if it does not.

    Errors as `look`.
    """
    api, path, name = (
        Api(_cloud(resource, state).connection),
        _path(resource),
        resource["urn"].split("::")[-1],
    )

    def deleting(live: Json | None) -> bool:
        return live is None or str(live.get("status")).startswith("DELETE_")

    live = _until(lambda: _found(api, path), deleting)
    if live is not None and _busy(live):
        seconds = float((resource.get("customTimeouts") or {}).get("delete") or _AT_WORK_S)
        say(f"{name}: {live['status']}; waits up to {seconds:.0f} s")
        live = _until(lambda: _found(api, path), lambda live: live is None or not _busy(live), seconds)
    if live is None:
        return ""
    return f"{name}: {live.get('status')}: {live.get('status_reason') or 'Magnum gives no reason'}"


def _path(resource: Mapping[str, Any]) -> str:
    cluster, _, group = str(resource["id"]).partition("/")
    return f"/clusters/{cluster}/nodegroups/{group}" if group else f"/clusters/{cluster}"


def _judged(operation: Operation, live: Json, does: Does, why: str, id: str | None = None) -> Step:
    """``does``, once Magnum has nothing in progress; a failed create becomes ``recreate``.

    For a cluster that has no address yet, the provider would permanently keep a kubeconfig without one.
    """
    status = str(live.get("status"))
    if _busy(live):
        timeouts = operation.resource.get("customTimeouts") or {}
        said = f"Magnum is working on it ({status}); run the same command again when it is done"
        seconds = float(timeouts.get("create") or _AT_WORK_S)
        return replace(Step.of(operation, FOR_YOU, said), busy_s=seconds)
    if status == "CREATE_FAILED":
        reason = live.get("status_reason") or "Magnum gives no reason"
        return Step.of(operation, "recreate", f"CREATE_FAILED: {reason}", id)
    return Step.of(operation, does, why, id)


def _busy(live: Json) -> bool:
    """Templates have no status."""
    return str(live.get("status") or "").endswith("_IN_PROGRESS")


def _found(api: Api, path: str) -> Json | None:
    """A complete object; None if it does not exist, or only in part."""
    try:
        return api.find("magnum", path)
    except Refused as refused:
        if refused.status == _UNREADABLE:
            return None
        raise


def _until(look: Callable[[], T], shown: Callable[[T], bool], seconds: float | None = None) -> T:
    """Poll until ``shown`` or until the time is up; by default the time that Magnum may take to begin."""
    end = time.monotonic() + (_BEGINS_S if seconds is None else seconds)
    while not shown(seen := look()) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    return seen


def _cloud(resource: Mapping[str, Any], state: Mapping[str, Any]) -> Cloud:
    """The cloud of a resource: the program gives its provider only the cloud's name and the region."""
    inputs = states.plain(resource.get("inputs") or {})
    told = states.provider(state, resource)
    return connect(told.get("cloud"), inputs.get("region") or told.get("region"))


def _named(api: Api, row: Look, inputs: Mapping[str, Any], known: Collection[str]) -> list[Json]:
    """Complete objects of that name that the state does not have: a list shows only some fields."""
    path = row.path(inputs)
    found = [one for one in api.listed("magnum", path, row.key) if one["name"] == inputs["name"]]
    new = [one for one in found if row.id(inputs, str(one["uuid"])) not in known]
    return [whole for one in new if (whole := _found(api, f"{path}/{one['uuid']}"))]


def _is_not(row: Look, inputs: Mapping[str, Any], one: Json, user: str, begun: datetime | None) -> str:
    """Why it cannot be ours; empty if it can."""
    if one.get("user_id", user) != user:
        return f"user {one['user_id']} created it"
    made = moment(one.get("created_at"))
    if begun and made and made < begun - _CLOCKS:
        return f"it was created before this stack ({made:%Y-%m-%d %H:%M} UTC)"
    return _differs(row, inputs, one)


def _differs(row: Look, inputs: Mapping[str, Any], one: Json) -> str:
    for ours, theirs in row.same.items():
        if ours in inputs and theirs in one and str(inputs[ours]) != str(one[theirs]):
            return f"its {theirs} is {one[theirs]}, ours is {inputs[ours]}"
    labels = one.get("labels") or {}
    for key, value in (inputs.get("labels") or {}).items():
        if str(labels.get(key)) != str(value):
            return f"its label {key} is {labels.get(key)}, ours is {value}"
    return ""


def _begun(resource: Mapping[str, Any], state: Mapping[str, Any]) -> datetime | None:
    """When the resource's provider was added to the state: before the stack's first resource."""
    urn = str(resource.get("provider") or "").rpartition("::")[0]
    made = (one.get("created") for one in states.resources(state) if one["urn"] == urn)
    return moment(next(made, None))
