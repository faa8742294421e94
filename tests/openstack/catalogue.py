"""Accounts and catalogue of the real keystone, except the projects of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.openstack import settings, tables
from tests.openstack.neighbours import Neighbours
from tests.openstack.services import Services


@dataclass
class Keystone:
    """The few administrator calls to keystone that the tests need."""

    url: str
    _client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        password = {"user": {"name": "admin", "domain": {"id": "default"}, "password": settings.PASSWORD}}
        scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
        asked = {"auth": {"identity": {"methods": ["password"], "password": password}, "scope": scope}}
        token = httpx.post(f"{self.url}/auth/tokens", json=asked, timeout=60).raise_for_status()
        header = {"X-Auth-Token": token.headers["X-Subject-Token"]}
        self._client = httpx.Client(base_url=self.url, headers=header, timeout=60)

    def make(self, kind: str, **values: Any) -> str:
        answer = self._client.post(f"/{kind}s", json={kind: values}).raise_for_status()
        return str(answer.json()[kind]["id"])

    def account(self, name: str, project: str, roles: Sequence[str]) -> str:
        known = {r["name"]: r["id"] for r in self._client.get("/roles").raise_for_status().json()["roles"]}
        where = self.make("project", name=project, domain_id="default")
        who = self.make("user", name=name, domain_id="default", password=settings.PASSWORD)
        for role in roles:
            self._client.put(f"/projects/{where}/users/{who}/roles/{known[role]}").raise_for_status()
        return where

    def service(self, kind: str, name: str, url: str) -> None:
        made = self.make("service", type=kind, name=name)
        where = {"service_id": made, "region_id": settings.REGION, "url": url}
        self.make("endpoint", interface="public", **where)
        self.make("endpoint", interface="internal", **where)


def furnish(services: Services, neighbours: Neighbours) -> Keystone:
    """Fill the catalogue and make Magnum's own account; returns the administrator's client."""
    keystone = Keystone(services.auth_url)
    keystone.account(settings.SERVICE_USER, "service", ("admin", "service"))
    keystone.service("identity", "keystone", services.auth_url)
    keystone.service("container-infra", "magnum", services.magnum_url)
    for kind, (name, path) in tables.CATALOGUE.items():
        keystone.service(kind, name, neighbours.url + path)
    return keystone
