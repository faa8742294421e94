"""Checks at Magnum whether a resource that a killed run was creating exists; read-only.

Magnum's objects cannot carry a tag, so ours are recognised by what only ours can have: a node group is part
of a cluster in the state; a cluster has the name, the creator and the arguments (`LOOKUPS`) of the
interrupted create, and was created after the stack's provider in the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from gpuform.checkout.errors import Failure
from gpuform.clients.openstack.api import Api, Json
from gpuform.clients.openstack.cloud import Cloud, connect, translate_errors
from gpuform.clouds.openstack.lookups import (
    CLUSTER,
    LOOKUPS,
    NODE_GROUP,
    find_object,
    input_difference,
    list_candidates,
    stack_creation_time,
    why_foreign,
)
from gpuform.engine.pending import UPDATING, Operation
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import MANUAL, Action, Recovery, Step, ambiguous

T = TypeVar("T")
_START_WAIT_S = 60.0
"""Seconds that Magnum's conductor may take to begin what its API has accepted: the limit of its own RPC calls
(oslo.messaging's rpc_response_timeout, 60 s)."""
_POLL_S = 1.0
_DEFAULT_TIMEOUT_S = 3600.0
"""Seconds to wait for Magnum if the program sets no limit (the provider's own: 60 minutes)."""


def require_credentials_of(project: str, stack: str, cloud: Cloud) -> None:
    """Raise Failure if the credentials are of another project; "" means that the stack's is not known yet."""
    with translate_errors("openstack token issue"):
        current = str(cloud.session.get_project_id() or "")
    if project and project != current:
        raise Failure(
            f"stack {stack}",
            f"is in project {project}, but the credentials are for project {current}",
            "use credentials of the stack's own project",
        )


class MagnumRecovery(Recovery):
    """Errors are also those of `gpuform.clients.openstack.cloud.translate_errors`."""

    name: ClassVar[str] = "OpenStack"
    prefix: ClassVar[str] = "openstack:"
    resumes: ClassVar[bool] = True
    wait_error: ClassVar[str] = "Error waiting for openstack_containerinfra_"
    """The provider polls as soon as Magnum's API has answered, but the conductor begins later: the provider
    takes an object that is not stored yet for deleted, and an operation that has not begun for refused
    (terraform-provider-openstack 3.4, containerinfra_shared_v1.go, and each operation's StateChangeConf)."""

    def require_account(self, stack: str, state: Mapping[str, Any]) -> None:
        for resource in states.resources(state):
            project = (resource.get("outputs") or {}).get("projectId")
            if not resource["type"].startswith(self.prefix) or not isinstance(project, str) or not project:
                continue
            require_credentials_of(project, stack, _cloud_of(resource, state))
            return

    def lookup(self, operation: Operation, state: Mapping[str, Any]) -> Step:
        """What Magnum does not list is looked for as long as Magnum may take to begin it."""
        lookup = LOOKUPS.get(operation.type)
        if lookup is None:
            return Step.manual(operation, "the program does not create this type")
        inputs = states.reveal_secrets(operation.resource.get("inputs") or {})
        if not inputs.get("name") or (lookup.in_cluster and not inputs.get("clusterId")):
            return Step.manual(operation, "its inputs have no name or no cluster")
        cloud = _cloud_of(operation.resource, state)
        api, known = Api(cloud.connection), states.ids_of_type(state, operation.type)
        candidates = _poll(lambda: list_candidates(api, lookup, inputs, known), bool)
        if not candidates:
            return Step.of(operation, "clear", "Magnum has none with this name")
        if lookup.in_cluster:
            foreign = {str(item["uuid"]): input_difference(lookup, inputs, item) for item in candidates}
        else:
            with translate_errors("openstack token issue"):
                user = str(cloud.session.get_user_id() or "")
            created = stack_creation_time(operation.resource, state)
            reasons = (why_foreign(lookup, inputs, item, user, created) for item in candidates)
            foreign = {str(item["uuid"]): why for item, why in zip(candidates, reasons, strict=True)}
        own = [uuid for uuid, why in foreign.items() if not why]
        if len(own) > 1:
            raise ambiguous(operation, own)
        if own:
            matches = "its name, creator, creation time and arguments match"
            why = f"it exists, and {'it is in our cluster' if lookup.in_cluster else matches}"
            [live] = [item for item in candidates if str(item["uuid"]) == own[0]]
            return _next_step(operation, live, "import", why, lookup.id(inputs, own[0]))
        uuid, why = next(iter(foreign.items()))
        return Step.manual(operation, f"{uuid} has its name, but {why}, so it is not ours")

    def reread(self, operation: Operation, state: Mapping[str, Any], does: Action = "refresh") -> Step | None:
        """Once Magnum is done with it.

        Reasons: the provider gave up waiting for it, or a run was killed that had requested an update from
        Magnum, or a new kubeconfig is wanted, for the provider keeps the one that it has.
        """
        side = "inputs" if operation.kind == UPDATING else "outputs"
        declared = states.reveal_secrets(operation.resource.get(side) or {})
        resources = [item for item in states.resources(state) if item["urn"] == operation.urn]
        resource = next(iter(resources), operation.resource)  # a pending update has no id of its own
        path = _magnum_path(resource)
        api = Api(_cloud_of(operation.resource, state).connection)

        def has_begun(live: Json | None) -> bool:
            node_count = declared.get("nodeCount") if operation.type == NODE_GROUP else None
            if live is None or node_count in (None, live.get("node_count")):
                return live is not None
            return _is_busy(live) or str(live.get("status")).endswith("_FAILED")

        live = _poll(lambda: find_object(api, path), has_begun)
        if live is None:
            return Step.of(operation, "refresh", "Magnum no longer has it")
        return _next_step(operation, live, does, f"Magnum reports {live.get('status')}")

    def renewable(self, state: Mapping[str, Any]) -> list[Operation]:
        clusters = [item for item in states.resources(state) if item["type"] == CLUSTER and item.get("id")]
        return [Operation("renewing", item) for item in clusters]

    def wait_deleted(
        self, resource: Mapping[str, Any], state: Mapping[str, Any], say: Callable[[str], None]
    ) -> str:
        api, path = Api(_cloud_of(resource, state).connection), _magnum_path(resource)
        name = resource["urn"].split("::")[-1]

        def is_deleting(live: Json | None) -> bool:
            return live is None or str(live.get("status")).startswith("DELETE_")

        read = partial(find_object, api, path)
        live = _poll(read, is_deleting)
        if live is not None and _is_busy(live):
            seconds = float((resource.get("customTimeouts") or {}).get("delete") or _DEFAULT_TIMEOUT_S)
            say(f"{name}: {live['status']}; waits up to {seconds:.0f} s")
            live = _poll(read, lambda live: live is None or not _is_busy(live), seconds)
        if live is None:
            return ""
        return f"{name}: {live.get('status')}: {live.get('status_reason') or 'Magnum gives no reason'}"


def _magnum_path(resource: Mapping[str, Any]) -> str:
    cluster, _, group = str(resource["id"]).partition("/")
    return f"/clusters/{cluster}/nodegroups/{group}" if group else f"/clusters/{cluster}"


def _next_step(operation: Operation, live: Json, does: Action, why: str, id: str | None = None) -> Step:
    """``does``, once Magnum has nothing in progress; a failed create becomes ``recreate``.

    For a cluster that has no address yet, the provider would permanently keep a kubeconfig without one.
    """
    status = str(live.get("status"))
    if _is_busy(live):
        timeouts = operation.resource.get("customTimeouts") or {}
        fact = f"Magnum is working on it ({status}); run the same command again when it is done"
        seconds = float(timeouts.get("create") or _DEFAULT_TIMEOUT_S)
        return replace(Step.of(operation, MANUAL, fact), busy_s=seconds)
    if status == "CREATE_FAILED":
        reason = live.get("status_reason") or "Magnum gives no reason"
        return Step.of(operation, "recreate", f"CREATE_FAILED: {reason}", id)
    return Step.of(operation, does, why, id)


def _is_busy(live: Json) -> bool:
    return str(live.get("status") or "").endswith("_IN_PROGRESS")


def _poll(read: Callable[[], T], is_done: Callable[[T], bool], seconds: float | None = None) -> T:
    """Poll until ``is_done`` or until the time is up; by default the time that Magnum may take to begin."""
    end = time.monotonic() + (_START_WAIT_S if seconds is None else seconds)
    while not is_done(result := read()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return result


def _cloud_of(resource: Mapping[str, Any], state: Mapping[str, Any]) -> Cloud:
    """The cloud of a resource: the program gives its provider only the cloud's name and the region."""
    inputs = states.reveal_secrets(resource.get("inputs") or {})
    provider = states.provider_inputs(state, resource)
    return connect(provider.get("cloud"), inputs.get("region") or provider.get("region"))
