"""Checks at Magnum whether a resource that a killed run was creating exists; read-only.

Magnum's objects cannot carry a tag, so ours are recognised by what only ours can have: a node group is part
of a cluster in the state; a cluster or a template has the name, the creator and the arguments (`LOOKS`) of
the interrupted create, and was created after the stack's provider in the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from gpuform.checkout.errors import Failure
from gpuform.clients.openstack.api import Api, Json
from gpuform.clients.openstack.cloud import Cloud, answers, connect
from gpuform.clouds.openstack.lookups import (
    CLUSTER,
    LOOKS,
    NODE_GROUP,
    candidates,
    difference,
    find,
    stack_created,
    why_foreign,
)
from gpuform.engine.pending import UPDATING, Operation
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import MANUAL, Does, Recovery, Step, ambiguous

T = TypeVar("T")
_BEGINS_S = 60.0
"""Seconds that Magnum's conductor may take to begin what its API has accepted: the limit of its own RPC calls
(oslo.messaging's rpc_response_timeout, 60 s)."""
_LOOK_S = 1.0
_AT_WORK_S = 3600.0
"""Seconds to wait for Magnum if the program sets no limit (the provider's own: 60 minutes)."""


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


class MagnumRecovery(Recovery):
    """Errors are also those of `gpuform.clients.openstack.cloud.answers`."""

    name: ClassVar[str] = "OpenStack"
    prefix: ClassVar[str] = "openstack:"
    resumes: ClassVar[bool] = True
    wait_error: ClassVar[str] = "Error waiting for openstack_containerinfra_"
    """The provider polls as soon as Magnum's API has answered, but the conductor begins later: the provider
    takes an object that is not stored yet for deleted, and an operation that has not begun for refused
    (terraform-provider-openstack 3.4, containerinfra_shared_v1.go, and each operation's StateChangeConf)."""

    def require_place(self, stack: str, state: Mapping[str, Any]) -> None:
        for one in states.resources(state):
            project = (one.get("outputs") or {}).get("projectId")
            if not one["type"].startswith(self.prefix) or not isinstance(project, str) or not project:
                continue
            require_credentials_of(project, stack, _cloud(one, state))
            return

    def lookup(self, operation: Operation, state: Mapping[str, Any]) -> Step:
        """What Magnum does not list is looked for as long as Magnum may take to begin it."""
        row = LOOKS.get(operation.type)
        if row is None:
            return Step.left(operation, "the program does not create this type")
        inputs = states.plain(operation.resource.get("inputs") or {})
        if not inputs.get("name") or (row.part and not inputs.get("clusterId")):
            return Step.left(operation, "its inputs have no name or no cluster")
        cloud = _cloud(operation.resource, state)
        api, known = Api(cloud.connection), states.ids(state, operation.type)
        named = _until(lambda: candidates(api, row, inputs, known), bool)
        if not named:
            return Step.of(operation, "clear", "Magnum has none with this name")
        if row.part:
            foreign = {str(one["uuid"]): difference(row, inputs, one) for one in named}
        else:
            with answers("openstack token issue"):
                user = str(cloud.session.get_user_id() or "")
            begun = stack_created(operation.resource, state)
            foreign = {str(one["uuid"]): why_foreign(row, inputs, one, user, begun) for one in named}
        mine = [uuid for uuid, why in foreign.items() if not why]
        if len(mine) > 1:
            raise ambiguous(operation, mine)
        if mine:
            matches = "its name, creator, creation time and arguments match"
            why = f"it exists, and {'it is in our cluster' if row.part else matches}"
            [live] = [one for one in named if str(one["uuid"]) == mine[0]]
            return _judged(operation, live, "import", why, row.id(inputs, mine[0]))
        uuid, why = next(iter(foreign.items()))
        return Step.left(operation, f"{uuid} has its name, but {why}, so it is not ours")

    def reread(self, operation: Operation, state: Mapping[str, Any], does: Does = "refresh") -> Step | None:
        """Once Magnum is done with it.

        Reasons: the provider gave up waiting for it, or a run was killed that had requested an update from
        Magnum, or a new kubeconfig is wanted, for the provider keeps the one that it has.
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

        live = _until(lambda: find(api, path), begun)
        if live is None:
            return Step.of(operation, "refresh", "Magnum no longer has it")
        return _judged(operation, live, does, f"Magnum reports {live.get('status')}")

    def renewable(self, state: Mapping[str, Any]) -> list[Operation]:
        found = [one for one in states.resources(state) if one["type"] == CLUSTER and one.get("id")]
        return [Operation("renewing", one) for one in found]

    def wait_deleted(
        self, resource: Mapping[str, Any], state: Mapping[str, Any], say: Callable[[str], None]
    ) -> str:
        api, path = Api(_cloud(resource, state).connection), _path(resource)
        name = resource["urn"].split("::")[-1]

        def deleting(live: Json | None) -> bool:
            return live is None or str(live.get("status")).startswith("DELETE_")

        live = _until(lambda: find(api, path), deleting)
        if live is not None and _busy(live):
            seconds = float((resource.get("customTimeouts") or {}).get("delete") or _AT_WORK_S)
            say(f"{name}: {live['status']}; waits up to {seconds:.0f} s")
            live = _until(lambda: find(api, path), lambda live: live is None or not _busy(live), seconds)
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
        return replace(Step.of(operation, MANUAL, said), busy_s=seconds)
    if status == "CREATE_FAILED":
        reason = live.get("status_reason") or "Magnum gives no reason"
        return Step.of(operation, "recreate", f"CREATE_FAILED: {reason}", id)
    return Step.of(operation, does, why, id)


def _busy(live: Json) -> bool:
    """Templates have no status."""
    return str(live.get("status") or "").endswith("_IN_PROGRESS")


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
