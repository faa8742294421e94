"""The health loop has a node replaced by the real Magnum API, with a credential that may do nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.incluster.rebuilding import Rebuilder, magnum_api
from tests.openstack import settings
from tests.openstack.world import TEMPLATE, World
from tests.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

GROUP = "gpu-a100"
RULES = [
    {"service": "container-infra", "method": "GET", "path": "/v1/clusters/research/nodegroups/*"},
    {"service": "container-infra", "method": "POST", "path": "/v1/clusters/research/actions/resize"},
]
"""As docs/health.md says to make it."""


def credential(world: World, folder: Path, rules: list[dict[str, str]]) -> Path:
    """An application credential of the project's member, as the Secret's files."""
    own = {"name": world.user, "domain": {"id": "default"}, "password": settings.PASSWORD}
    asked = {"methods": ["password"], "password": {"user": own}}
    scope = {"project": {"id": world.project}}
    url = world.services.auth_url
    token = httpx.post(f"{url}/auth/tokens", json={"auth": {"identity": asked, "scope": scope}}, timeout=60)
    user = token.raise_for_status().json()["token"]["user"]["id"]
    wanted = {"name": "gpuform", "roles": [{"name": "member"}], "access_rules": rules}
    made = httpx.post(
        f"{url}/users/{user}/application_credentials",
        json={"application_credential": wanted},
        headers={"X-Auth-Token": token.headers["X-Subject-Token"]},
        timeout=60,
    )
    found = made.raise_for_status().json()["application_credential"]
    folder.mkdir()
    (folder / "auth_url").write_text(url)
    (folder / "region_name").write_text(settings.REGION)
    (folder / "application_credential_id").write_text(found["id"])
    (folder / "application_credential_secret").write_text(found["secret"])
    return folder


class NoPods:
    """The node is empty already."""

    def pods(self, node: str) -> list[Any]:
        return []


def test_a_server_goes_and_the_group_gets_another(world: World, tmp_path: Path) -> None:
    world.template()
    client = world.magnum()
    made = client.clusters.create(name="research", cluster_template_id=TEMPLATE, node_count=1, master_count=1)
    world.settled("research")
    client.nodegroups.create("research", name=GROUP, flavor_id="g4.p1.40g", node_count=2, min_node_count=0)
    world.settled("research")
    first, second = world.nodes(made.uuid)[GROUP]
    cloud = magnum_api.Magnum(credential(world, tmp_path / "openstack", RULES), "research")
    world.forget()
    notes = {"name": "n", "uid": "u", "annotations": {"gpuform.io/gpu-health": "{}"}}
    note: dict[str, Any] | None = {"node": "n", "uid": "u", "server": first["id"], "group": GROUP}
    note |= {"class": "replace", "elastic": False, "faults": [], "stage": "drain", "since": time.time()}
    note |= {"from": None, "to": None, "tries": 0}
    said, rebuilder = [], Rebuilder(NoPods(), cloud)  # type: ignore[arg-type]

    def look() -> bool:
        nonlocal note
        there = {one["id"] for one in world.nodes(made.uuid)[GROUP]}
        move = rebuilder.look(note, {"metadata": notes} if first["id"] in there else None, time.time())
        said.append(move.said)
        note = move.after
        return note is None

    until(look, seconds=60, what=lambda: str(said))
    assert said[-1] == f"{GROUP} has 2 nodes again, one of them new"
    third = [one for one in world.nodes(made.uuid)[GROUP] if one != second]
    assert [one["name"] for one in third] == [f"research-{GROUP}-2"]
    asked = [(one.path, one.body, one.status) for one in world.requests(changes=True)]
    resize = "/v1/clusters/research/actions/resize"
    assert asked == [
        (resize, {"node_count": 1, "nodes_to_remove": [first["id"]], "nodegroup": GROUP}, 202),
        (resize, {"node_count": 2, "nodes_to_remove": [], "nodegroup": GROUP}, 202),
    ]
    assert client.nodegroups.get("research", GROUP).status == "UPDATE_COMPLETE"
    with pytest.raises(magnum_api.Refused, match=r"Magnum: 404 .*other could not be found"):
        cloud.group("other")


def test_the_credential_may_do_nothing_else(world: World, tmp_path: Path) -> None:
    world.template()
    world.magnum().clusters.create(
        name="research", cluster_template_id=TEMPLATE, node_count=1, master_count=1
    )
    world.settled("research")
    cloud = magnum_api.Magnum(credential(world, tmp_path / "openstack", RULES), "research")
    assert cloud.group("default-worker")["node_count"] == 1
    with pytest.raises(magnum_api.Refused, match="Magnum: 401"):
        cloud._call("DELETE", "/clusters/research")
    assert [one.name for one in world.clusters()] == ["research"]
