"""CERN's two commands, typed and declared: the same requests to a real Magnum API (FACTS 1, rows 1 and 2).

The commands are those of the talk, run with OpenStack's own client; ``--cluster-template`` is added, since
upstream's client requires it (CERN's has a default).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.openstack.stacks import ENVIRONMENT, make_cluster_stack
from tests.openstack.tenant import TEMPLATE, Request, Tenant

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

CLUSTER = "coe cluster create digaponc-gpu-004 --merge-labels --labels nvidia_gpu_enabled=true"
GROUP = "coe nodegroup create digaponc-gpu-004 gpu-t4 --flavor g2.5xlarge --node-count 1"

DIFFER: dict[str, str] = {
    "cluster_template_id": "the provider looks the name up and sends the id; the client sends the name",
    "discovery_url": "the client sends null, we leave it out: null is what Magnum takes for absent",
    "keypair": "the client sends null, we leave it out: both take the template's",
    "max_node_count": "the client sends null, we leave it out: both mean no bound",
    "min_node_count": "the client sends 0, we leave it out: 0 is Magnum's default",
    "role": "the client sends worker, we leave it out: worker is Magnum's default",
}
"""Fields of the two bodies that may differ, and why; all others must be equal."""
SIGNED = ("POST", "/v1/certificates")
"""Beside the two: a certificate for the kubeconfig, which ``openstack coe cluster config`` requests, too."""


def _declared() -> dict[str, Any]:
    cluster = {k: v for k, v in ENVIRONMENT["cluster"].items() if k in ("kind", "template", "version")}
    return ENVIRONMENT | {"name": "digaponc-gpu-004", "cluster": cluster}


def _asked(tenant: Tenant) -> tuple[Request, Request]:
    """The two requests; asserts that the only other one is for the kubeconfig's certificate."""
    cluster, *signed, group = sorted(tenant.requests(changes=True), key=lambda one: one.path.count("/"))
    assert [(one.method, one.path.rstrip("/")) for one in signed] == [SIGNED]
    return cluster, group


def test_cern_commands_and_ours_lead_to_the_same_requests(tenant: Tenant, tmp_path: Path) -> None:
    template = tenant.template()
    tenant.forget_requests()
    tenant.openstack(*CLUSTER.split(), "--cluster-template", TEMPLATE)
    tenant.wait_until_settled("digaponc-gpu-004")
    tenant.openstack(*GROUP.split())
    typed = tenant.wait_until_settled("digaponc-gpu-004")
    tenant.openstack("coe", "cluster", "config", "digaponc-gpu-004", "--dir", str(tmp_path))
    by_hand = _asked(tenant)
    groups_by_hand = _stored_groups(tenant)
    stored_by_hand = _stored(typed)
    tenant.magnum().clusters.delete("digaponc-gpu-004")
    tenant.wait_until_gone("digaponc-gpu-004")

    tenant.forget_requests()
    make_cluster_stack(tenant, tmp_path, _declared()).run("up")
    ours = _asked(tenant)

    differ = set()
    for typed_request, our_request in zip(by_hand, ours, strict=True):
        assert (typed_request.method, typed_request.status) == (our_request.method, our_request.status)
        before, now = typed_request.body, our_request.body
        differ |= {
            field for field in before.keys() | now.keys() if before.get(field, ...) != now.get(field, ...)
        }
    assert differ == DIFFER.keys()
    assert by_hand[0].path.rstrip("/") == ours[0].path.rstrip("/") == "/v1/clusters"
    cluster = tenant.wait_until_settled("digaponc-gpu-004")
    assert by_hand[1].path.rstrip("/") == f"/v1/clusters/{cluster.name}/nodegroups"
    assert ours[1].path.rstrip("/") == f"/v1/clusters/{cluster.uuid}/nodegroups"
    # Fields that differ mean the same: each side sends Magnum's default, or omits it.
    assert by_hand[0].body["cluster_template_id"] == TEMPLATE
    assert ours[0].body["cluster_template_id"] == template.uuid
    default = {"min_node_count": 0, "role": "worker"}
    for field in DIFFER.keys() - {"cluster_template_id"}:
        assert {request.body.get(field) for request in (*by_hand, *ours)} <= {default.get(field), None}
    # And Magnum stored the same for both.
    assert _stored(cluster) == stored_by_hand
    assert _stored_groups(tenant) == groups_by_hand


_OF_EACH = {"uuid", "stack_id", "created_at", "updated_at", "links", "cluster_id", "id"}


def _stored(cluster: Any) -> dict[str, Any]:
    return {key: value for key, value in cluster.to_dict().items() if key not in _OF_EACH}


def _stored_groups(tenant: Tenant) -> dict[str, dict[str, Any]]:
    magnum = tenant.magnum()
    found = [
        magnum.nodegroups.get("digaponc-gpu-004", g.uuid) for g in magnum.nodegroups.list("digaponc-gpu-004")
    ]
    return {group.name: _stored(group) for group in found}
