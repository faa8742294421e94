"""A played Magnum driver: it changes states and counts, makes no server, and follows a test's instructions.

It runs in Magnum's own processes, as entry point ``magnum.drivers``. It proves what Magnum's API does with
a request, never that such a cluster would work. Instructions are in ``<folder>/told/<project>.json`` (see
``tests/openstack/tenant.py``), the nodes that would exist in ``<folder>/nodes/<cluster>/<group>.json``.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from pathlib import Path

import locking  # noqa: F401 - for what it does
from magnum.common import cert_manager
from magnum.drivers.common import driver
from magnum.objects import fields
from magnum.service import periodic

FOLDER = Path(os.environ["GPUFORM_PLAYED"])
S = fields.ClusterStatus
# Magnum polls a driver for clusters in progress every 10 s, too slow for tests.
periodic.MagnumPeriodicTasks._periodic_spacing["sync_cluster_status"] = 0.5


class Driver(driver.Driver):
    """Groups settle at the next poll after ``slow`` seconds, a cluster with the last of its groups."""

    provides = [  # noqa: RUF012 - Magnum reads it off the instance
        {"server_type": "vm", "os": "fedora-coreos", "coe": "kubernetes"},
        {"server_type": "vm", "os": "ubuntu", "coe": "kubernetes"},
    ]
    _since: dict[tuple[str, str], float] = {}  # noqa: RUF012 - one process, one driver

    def create_cluster(self, context, cluster, cluster_create_timeout):
        told = _told(cluster)
        cluster.api_address = told.get("api_address") or "https://10.0.0.5:6443"
        if told.get("ca"):
            cluster.ca_cert_ref = _keep_ca(context, told["ca"])
        for group in cluster.nodegroups:
            _resize(cluster, group)
        cluster.stack_id = str(uuid.uuid4())

    def update_cluster(self, context, cluster, scale_manager=None, rollback=False):
        group = cluster.default_ng_worker
        group.status = S.UPDATE_IN_PROGRESS
        _resize(cluster, group)
        group.save()

    def resize_cluster(self, context, cluster, resize_manager, node_count, nodes_to_remove, nodegroup=None):
        _resize(cluster, nodegroup or cluster.default_ng_worker, nodes_to_remove or ())

    def upgrade_cluster(
        self,
        context,
        cluster,
        cluster_template,
        max_batch_size,
        nodegroup,
        scale_manager=None,
        rollback=False,
    ):
        """Nothing to upgrade."""

    def delete_cluster(self, context, cluster):
        for group in cluster.nodegroups:
            group.status = S.DELETE_IN_PROGRESS
            group.save()

    def create_nodegroup(self, context, cluster, nodegroup):
        nodegroup.stack_id = str(uuid.uuid4())
        _resize(cluster, nodegroup)
        self._ask_again(cluster, nodegroup)

    def update_nodegroup(self, context, cluster, nodegroup):
        self._ask_again(cluster, nodegroup)

    def delete_nodegroup(self, context, cluster, nodegroup):
        self._ask_again(cluster, nodegroup)

    @staticmethod
    def _ask_again(cluster, nodegroup):
        """Magnum may have settled the cluster between writing its state and the group's."""
        nodegroup.save()
        cluster.status = S.UPDATE_IN_PROGRESS
        cluster.status_reason = None
        cluster.save()

    def create_federation(self, context, federation):
        raise NotImplementedError

    update_federation = delete_federation = create_federation

    def update_cluster_status(self, context, cluster, use_admin_ctx=False):
        if not cluster.stack_id:
            return  # creation not yet requested
        told = _told(cluster)
        groups = cluster.nodegroups
        of_cluster = cluster.status in (S.CREATE_IN_PROGRESS, S.DELETE_IN_PROGRESS)
        for group in groups:
            if group.status.endswith("_IN_PROGRESS"):
                self._settle(cluster, group, told, of_cluster)
        left = [g for g in cluster.nodegroups if g.status.endswith("_IN_PROGRESS")]
        if left:
            return
        failed = [g for g in cluster.nodegroups if g.status.endswith("_FAILED")]
        verb = cluster.status.removesuffix("_IN_PROGRESS")
        cluster.status = f"{verb}_FAILED" if failed else f"{verb}_COMPLETE"
        cluster.status_reason = failed[0].status_reason if failed else None
        if cluster.status == S.DELETE_COMPLETE:  # Magnum itself deletes it and its groups from the database
            shutil.rmtree(FOLDER / "nodes" / cluster.uuid, ignore_errors=True)
        else:
            cluster.save()

    def _settle(self, cluster, group, told, of_cluster):
        verb = group.status.removesuffix("_IN_PROGRESS")
        rule = told.get(verb.lower(), {})
        meant = group.name == rule["of"] if rule.get("of") else of_cluster
        began = self._since.setdefault((group.uuid, group.status), time.monotonic())
        if time.monotonic() - began < rule.get("slow", told.get("slow", 0)) or (meant and rule.get("hang")):
            return
        self._since.pop((group.uuid, group.status))
        if meant and rule.get("fail"):
            group.status, group.status_reason = f"{verb}_FAILED", rule["fail"]
            group.save()
        elif verb == "DELETE" and cluster.status != S.DELETE_IN_PROGRESS:
            _nodes_file(cluster, group).unlink(missing_ok=True)
            group.destroy()
        else:
            group.status, group.status_reason = f"{verb}_COMPLETE", None
            group.save()


def _told(cluster) -> dict:
    try:
        return json.loads((FOLDER / "told" / f"{cluster.project_id}.json").read_text())
    except FileNotFoundError:
        return {}


def _keep_ca(context, ca) -> str:
    """Magnum then signs with an existing cluster's authority."""
    return cert_manager.get_backend().CertManager.store_cert(
        certificate=Path(ca["certificate"]).read_text(),
        private_key=Path(ca["key"]).read_text(),
        private_key_passphrase=None,
        name="ca",
        context=context,
    )


def _nodes_file(cluster, group) -> Path:
    return FOLDER / "nodes" / cluster.uuid / f"{group.name}.json"


def _resize(cluster, group, remove=()) -> None:
    """Match the group's node count: those to be removed go first, then the youngest."""
    file = _nodes_file(cluster, group)
    known = json.loads(file.read_text()) if file.exists() else {"made": 0, "nodes": []}
    nodes = [n for n in known["nodes"] if not {n["id"], n["name"], n["address"]} & set(remove)]
    del nodes[group.node_count :]
    while len(nodes) < group.node_count:
        number = known["made"]
        known["made"] += 1
        address = f"10.{sum(group.name.encode()) % 250}.{number // 250}.{number % 250 + 2}"
        name = f"{cluster.name}-{group.name}-{number}"
        nodes.append({"id": str(uuid.uuid4()), "name": name, "address": address})
    file.parent.mkdir(parents=True, exist_ok=True)
    whole = file.with_suffix(".new")
    whole.write_text(json.dumps(known | {"nodes": nodes}))
    whole.replace(file)
    group.node_addresses = [node["address"] for node in nodes]
