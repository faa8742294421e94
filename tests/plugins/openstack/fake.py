"""What a small Magnum answers to each request; see `serving`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.plugins.openstack.conductor import PROJECT, USER, Conductor

Answer = tuple[int, Any]
__all__ = ["PROJECT", "USER", "Answer", "Fake", "error"]


class Fake(Conductor):
    """The API before the conductor; ``ca`` is its answer to who asks for a cluster's authority."""

    ca: Answer = (200, {"pem": "-----BEGIN CERTIFICATE-----\nCA\n"})

    def answer(self, method: str, path: str, body: Any, query: str) -> Answer:
        """The answer of a request below /magnum/v1."""
        if "limit=0" in query.split("&"):
            return error(400, "Limit must be positive")
        for verb, pattern, do in _ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                return do(self, body, *found.groups())
        return error(404, f"no such path: {method} {path}")

    def list_clusters(self, body: Any) -> Answer:
        seen = [one for one in self.clusters.values() if self._unseen.get(one["uuid"], 0) <= 0]
        return 200, {"clusters": seen}

    def create_cluster(self, body: Any) -> Answer:
        if self._one(self.templates, body["cluster_template_id"]) is None:
            return error(404, f"ClusterTemplate {body['cluster_template_id']} could not be found.")
        return 202, {"uuid": self.make_cluster(body)["uuid"]}

    def get_cluster(self, body: Any, key: str) -> Answer:
        found = self._one(self.clusters, key)
        if found is not None and self._unseen.get(found["uuid"], 0) > 0:
            self._unseen[found["uuid"]] -= 1
            found = None
        if found is None:
            return error(404, f"Cluster {key} could not be found.")
        self.look(found)
        if found["uuid"] not in self.clusters:
            return error(404, f"Cluster {key} could not be found.")
        failed = [one for one in self._of(found["uuid"]) if one["status"].endswith("_FAILED")]
        faults = {one["name"]: one["status_reason"] for one in failed}
        more = {"faults": faults} if found["status"].endswith("_FAILED") else {}
        return 200, {**found, "node_count": sum(one["node_count"] for one in self._of(found["uuid"])), **more}

    def delete_cluster(self, body: Any, key: str) -> Answer:
        found = self._one(self.clusters, key)
        if found is None:
            return error(404, f"Cluster {key} could not be found.")
        self.move(found, "DELETE")
        return 204, None

    def act(self, body: Any, key: str, action: str) -> Answer:
        cluster = self.clusters[key]
        wanted = body.get("nodegroup") or "default-worker"
        group = next(one for one in self._of(key) if wanted in (one["uuid"], one["name"]))
        if action == "upgrade":
            cluster["cluster_template_id"] = body["cluster_template"]
            self.move(cluster, "UPDATE")
            return 202, {"uuid": key}
        count, most = body["node_count"], group["max_node_count"]
        if count < group["min_node_count"] or (most and count > most):
            return error(400, f"Resizing {group['name']} outside the allowed range")
        group["node_count"] = count
        reason = self.reason
        self.move(cluster, "UPDATE")
        self.reason = reason
        self.move(group, "UPDATE")
        return 202, {"uuid": key}

    def list_groups(self, body: Any, cluster: str) -> Answer:
        for one in self._of(cluster):
            self.look(one)
        return 200, {"nodegroups": self._of(cluster)}

    def create_group(self, body: Any, cluster: str) -> Answer:
        if any(one["name"] == body["name"] for one in self._of(cluster)):
            return error(409, f"A node group with name {body['name']} already exists in the cluster.")
        made = self._group(cluster, body)
        self.move(made, "CREATE")
        return 202, made

    def get_group(self, body: Any, cluster: str, key: str) -> Answer:
        found = next((one for one in self._of(cluster) if key in (one["uuid"], one["name"])), None)
        if found is not None:
            self.look(found)
        if found is None or found["uuid"] not in self.groups:
            return error(404, f"Nodegroup {key} could not be found.")
        return 200, found

    def patch_group(self, body: Any, cluster: str, key: str) -> Answer:
        group = self.groups[key]
        after = {**group, **{one["path"][1:]: one.get("value") for one in body}}
        most = after["max_node_count"]
        if after["min_node_count"] > after["node_count"] or (most and after["node_count"] > most):
            return error(409, "min_node_count should be less or equal to node_count")
        group.update(after)
        self.move(group, "UPDATE")
        return 202, group

    def delete_group(self, body: Any, cluster: str, key: str) -> Answer:
        if key not in self.groups:
            return error(404, f"Nodegroup {key} could not be found.")
        self.move(self.groups[key], "DELETE")
        return 204, None

    def create_template(self, body: Any) -> Answer:
        return 201, self.template(**{"labels": {}, "public": False, **body})

    def list_templates(self, body: Any) -> Answer:
        return 200, {"clustertemplates": list(self.templates.values())}

    def get_template(self, body: Any, key: str) -> Answer:
        found = self._one(self.templates, key)
        return (200, found) if found else error(404, f"ClusterTemplate {key} could not be found.")

    def patch_template(self, body: Any, key: str) -> Answer:
        if any(one["cluster_template_id"] == key for one in self.clusters.values()):
            return error(400, f"ClusterTemplate {key} is referenced by one or multiple clusters.")
        for one in body:
            value = one.get("value")
            if one["path"] == "/labels":
                value = json.loads(str(value).replace("'", '"'))
            self.templates[key][one["path"][1:]] = value
        return 200, self.templates[key]

    def delete_template(self, body: Any, key: str) -> Answer:
        if any(one["cluster_template_id"] == key for one in self.clusters.values()):
            return error(400, f"ClusterTemplate {key} is referenced by one or multiple clusters.")
        return (204, None) if self.templates.pop(key, None) else error(404, f"{key} could not be found.")

    def authority(self, body: Any, cluster: str) -> Answer:
        return self.ca

    def sign(self, body: Any) -> Answer:
        assert "BEGIN CERTIFICATE REQUEST" in body["csr"]
        return 201, {"cluster_uuid": body["cluster_uuid"], "pem": "-----BEGIN CERTIFICATE-----\nSIGNED\n"}


def error(status: int, said: str) -> Answer:
    return status, {"errors": [{"status": status, "title": said.partition(".")[0], "detail": said}]}


_C, _G, _T = "/clusters", r"/clusters/([^/]+)/nodegroups", "/clustertemplates"
_ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("GET", f"{_C}/?(?:detail)?", Fake.list_clusters),
    ("POST", _C, Fake.create_cluster),
    ("GET", f"{_C}/([^/]+)", Fake.get_cluster),
    ("DELETE", f"{_C}/([^/]+)", Fake.delete_cluster),
    ("POST", f"{_C}/([^/]+)/actions/(resize|upgrade)", Fake.act),
    ("GET", f"{_G}/?", Fake.list_groups),
    ("POST", f"{_G}/?", Fake.create_group),
    ("GET", f"{_G}/([^/]+)", Fake.get_group),
    ("PATCH", f"{_G}/([^/]+)", Fake.patch_group),
    ("DELETE", f"{_G}/([^/]+)", Fake.delete_group),
    ("POST", _T, Fake.create_template),
    ("GET", f"{_T}/?(?:detail)?", Fake.list_templates),
    ("GET", f"{_T}/([^/]+)", Fake.get_template),
    ("PATCH", f"{_T}/([^/]+)", Fake.patch_template),
    ("DELETE", f"{_T}/([^/]+)", Fake.delete_template),
    ("GET", "/certificates/([^/]+)", Fake.authority),
    ("POST", "/certificates", Fake.sign),
]
