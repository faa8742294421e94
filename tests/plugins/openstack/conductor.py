"""A small Magnum, as far as the stand-in asks one, and what is asked of its neighbours; see `serving`.

Only for the stand-in's own logic: how it waits, what it sends, what it makes of a failure. How the real
Magnum answers is tested in tests/openstack against the real one. States move one step with each look.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

PROJECT, USER = "p" * 32, "u" * 32
OFFERED = "kubernetes-1.30.2-2"
"""The template that an operator of the cloud has made."""
NO_HOST = "ResourceInError: resources.kube_masters: No valid host was found"
"""What heat says where nova has no room."""


@dataclass
class Conductor:
    """What the cloud has, how it behaves, and what it was asked."""

    address: str = ""
    newest: str = "1.14"
    password: str = "secret"
    looks: int = 2  # how often something is still in progress before it is done
    appears_after: int = 0  # looks before a cluster that was asked for is there
    reason: str = ""  # what the next create, or resize, fails with
    group_reason: str = ""  # what a cluster's groups say when it has failed
    hangs: bool = False  # deletions stay in progress
    refuses_delete: str = ""  # deletions end as DELETE_FAILED with this reason
    drops_answer: bool = False  # the next POST is carried out, and its connection closed without an answer
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    templates: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocking: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by service: neutron, ...
    page: int = 1000  # how many of these are in one answer
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    logins: int = 0
    _moves: dict[str, list[Any]] = field(default_factory=dict)
    _unseen: dict[str, int] = field(default_factory=dict)

    def changes(self) -> list[tuple[str, str, Any]]:
        """Every request that changes something, logins aside."""
        return [one for one in self.requests if one[0] not in ("GET", "HEAD") and "/auth/" not in one[1]]

    def posts(self, end: str = "/clusters") -> int:
        """How many requests have asked for something to be made, or done, at paths with this end."""
        return sum(method == "POST" and path.endswith(end) for method, path, _ in self.requests)

    def template(self, name: str = OFFERED, **more: Any) -> dict[str, Any]:
        """A template that is there, as an operator of the cloud has made it."""
        made = {
            "uuid": str(uuid.uuid4()),
            "name": name,
            "coe": "kubernetes",
            "image_id": "fedora-coreos-40",
            "labels": {"kube_tag": "v1.30.2"},
            "public": True,
            **_stamped(),
            **more,
        }
        self.templates[made["uuid"]] = made
        return made

    # What Magnum's conductor does, one step a look.

    def look(self, thing: dict[str, Any]) -> None:
        """Move a thing that is in progress on by one step."""
        moves = self._moves.get(thing["uuid"])
        if moves is None:
            return
        if moves[0] > 0:
            moves[0] -= 1
            return
        del self._moves[thing["uuid"]]
        status, reason = moves[1], moves[2]
        if status == "DELETE_COMPLETE":
            self.clusters.pop(thing["uuid"], None)
            self.groups.pop(thing["uuid"], None)
            for id in [one["uuid"] for one in self.groups.values() if one["cluster_id"] == thing["uuid"]]:
                del self.groups[id]
            return
        thing.update(status=status, status_reason=reason, updated_at=_now())
        if status == "CREATE_FAILED" and self.group_reason:
            for one in self._of(thing["uuid"]):
                one.update(status=status, status_reason=self.group_reason)
        if status == "CREATE_COMPLETE" and "api_address" in thing:
            thing["api_address"] = "https://10.0.0.5:6443"

    def move(self, thing: dict[str, Any], what: str) -> None:
        """Begin ``what`` (CREATE, UPDATE, DELETE) with a thing."""
        thing.update(status=f"{what}_IN_PROGRESS", status_reason=None)
        if what == "DELETE":
            if self.hangs:
                self._moves.pop(thing["uuid"], None)
                return
            end = ("DELETE_FAILED", self.refuses_delete) if self.refuses_delete else ("DELETE_COMPLETE", None)
        elif self.reason:
            end = (f"{what}_FAILED", self.reason)
            self.reason = ""
        else:
            end = (f"{what}_COMPLETE", None)
        self._moves[thing["uuid"]] = [self.looks, *end]

    def make_cluster(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A cluster as Magnum makes it of a request: what is left out comes from the template."""
        template = self._one(self.templates, asked["cluster_template_id"])
        assert template is not None
        labels = dict(asked.get("labels") or {})
        made = {
            "keypair": None,
            "master_count": 1,
            "create_timeout": 60,
            "flavor_id": "m1.small",
            "master_flavor_id": "m1.small",
            "docker_volume_size": None,
            "fixed_network": None,
            "fixed_subnet": None,
            "floating_ip_enabled": True,
            "master_lb_enabled": False,
            "discovery_url": None,
            **{key: value for key, value in asked.items() if key not in ("node_count", "merge_labels")},
            "uuid": str(uuid.uuid4()),
            "cluster_template_id": template["uuid"],
            "labels": {**template["labels"], **labels, "kube_dashboard_enabled": "false"},
            "labels_added": {**labels, "kube_dashboard_enabled": "false"},
            "labels_overridden": {},
            "labels_skipped": {},
            "api_address": None,
            "coe_version": None,
            "container_version": None,
            "master_addresses": [],
            "node_addresses": [],
            "stack_id": str(uuid.uuid4()),
            **_stamped(),
        }
        self.clusters[made["uuid"]] = made
        self._unseen[made["uuid"]] = self.appears_after
        for name, role, count in (
            ("default-master", "master", made["master_count"]),
            ("default-worker", "worker", asked.get("node_count", 1)),
        ):
            self._group(made["uuid"], {"name": name, "role": role, "node_count": count}, True)
        self.move(made, "CREATE")
        return made

    def ready(self, **asked: Any) -> dict[str, Any]:
        """A cluster that is there and done, as one request would have made it."""
        made = self.make_cluster({"name": "research", "cluster_template_id": OFFERED, **asked})
        self._moves.clear()
        made.update(status="CREATE_COMPLETE", api_address="https://10.0.0.5:6443")
        return made

    def _group(self, cluster: str, asked: dict[str, Any], default: bool = False) -> dict[str, Any]:
        made = {
            "node_count": 1,
            "min_node_count": 0,
            "max_node_count": None,
            "role": "worker",
            "image_id": "fedora-coreos-40",
            "flavor_id": "m1.small",
            "docker_volume_size": None,
            "labels_added": dict(asked.get("labels") or {}),
            "labels_overridden": {},
            "labels_skipped": {},
            "labels": {},
            **{key: value for key, value in asked.items() if key != "merge_labels"},
            "uuid": str(uuid.uuid4()),
            "cluster_id": cluster,
            "is_default": default,
            "status": "CREATE_COMPLETE",
            "status_reason": None,
            **_stamped(),
        }
        self.groups[made["uuid"]] = made
        return made

    def _of(self, cluster: str) -> list[dict[str, Any]]:
        return [one for one in self.groups.values() if one["cluster_id"] == cluster]

    def _one(self, things: dict[str, dict[str, Any]], key: str) -> dict[str, Any] | None:
        return next((one for one in things.values() if key in (one["uuid"], one["name"])), None)


def _stamped() -> dict[str, Any]:
    return {
        "created_at": _now(),
        "updated_at": None,
        "project_id": PROJECT,
        "user_id": USER,
        "status": "CREATE_COMPLETE",
    }


def _now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()
