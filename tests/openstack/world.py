"""A test's world: its own project at a real Magnum API, a clouds.yaml that names it, and recorded requests.

``world.cloud`` in ``world.clouds`` (the environment's OS_CLIENT_CONFIG_FILE points there) is the project as
a member sees it. ``tell`` instructs Magnum's played driver; ``neighbours`` is the stand-in beside Magnum.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lab.toolchain.progress import Lines
from tests.openstack import settings, tables
from tests.openstack.installed import NotToBeHad, installed
from tests.openstack.neighbours import Neighbours, serving
from tests.openstack.services import Services, running
from tests.waiting import until

CLOUD = "played"
TEMPLATE = "kubernetes-1.30.2-2"
_ROLES = ("member", "reader")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    version: str
    agent: str
    body: Any
    status: int

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD")


@dataclass
class World:
    """One project; ``requests`` and ``clusters`` show only this one."""

    services: Services
    neighbours: Neighbours
    folder: Path
    project: str
    user: str
    cloud: str = CLOUD
    _seen: int = 0

    @property
    def clouds(self) -> Path:
        return self.folder / "clouds.yaml"

    @property
    def environ(self) -> dict[str, str]:
        """A child process's environment to find the cloud; without other OS_ variables."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OS_")}
        return kept | {"OS_CLIENT_CONFIG_FILE": str(self.clouds), "OS_CLOUD": self.cloud}

    def write_clouds(self, **more: Any) -> None:
        auth = {
            **{"auth_url": self.services.auth_url, "username": self.user, "password": settings.PASSWORD},
            **{"project_name": self.user, "user_domain_id": "default", "project_domain_id": "default"},
        }
        cloud = {"auth": auth, "region_name": settings.REGION, "identity_api_version": 3, **more}
        self.clouds.write_text(yaml.safe_dump({"clouds": {self.cloud: cloud}}, sort_keys=False))

    def tell(self, on: str = "", *, of: str = "", fail: str = "", hang: bool = False, **more: Any) -> None:
        """What the driver does from now on: ``fail`` with a reason, ``hang``, take ``slow`` seconds.

        ``on`` is create, update or delete (default: create for a failure, delete for a hang), ``of`` a node
        group (default: the cluster). Instructions accumulate; a call without arguments clears them.
        ``api_address`` and ``ca`` ({certificate, key}: files) are for the next cluster.
        """
        file = self.services.played / "told" / f"{self.project}.json"
        if not (on or of or fail or hang or more):
            file.unlink(missing_ok=True)
            return
        told = json.loads(file.read_text()) if file.exists() else {}
        if on or of or fail or hang:
            rule = {"of": of, "fail": fail, "hang": hang}
            if "slow" in more:
                rule["slow"] = more.pop("slow")
            told[on or ("create" if fail else "delete")] = rule
        whole = file.with_suffix(".new")
        whole.write_text(json.dumps(told | more))
        whole.replace(file)

    def requests(self, changes: bool = False) -> list[Request]:
        """Requests to Magnum's API since the last ``forget``; with ``changes`` only modifying ones."""
        file = self.services.recorded
        lines = file.read_text().splitlines()[self._seen :] if file.exists() else []
        read = [json.loads(line) for line in lines]
        own = [
            Request(**{k: v for k, v in r.items() if k != "project"})
            for r in read
            if r["project"] == self.project
        ]
        return [request for request in own if request.changes or not changes]

    def forget(self) -> None:
        file = self.services.recorded
        self._seen = len(file.read_text().splitlines()) if file.exists() else 0

    def magnum(self, version: str = "1.11") -> Any:
        """python-magnumclient as this project's member."""
        from keystoneauth1 import session
        from keystoneauth1.identity import v3
        from magnumclient.v1 import client

        auth = v3.Password(
            auth_url=self.services.auth_url,
            username=self.user,
            password=settings.PASSWORD,
            project_id=self.project,
            user_domain_id="default",
        )
        return client.Client(
            session=session.Session(auth=auth), region_name=settings.REGION, api_version=version
        )

    def template(self, name: str = TEMPLATE, **values: Any) -> Any:
        """A template of this project, as an administrator provides it; its name says which Kubernetes."""
        usual = {
            **{
                "image_id": tables.IMAGE,
                "keypair_id": tables.KEYPAIR,
                "external_network_id": tables.EXTERNAL,
            },
            **{"flavor_id": "m2.medium", "master_flavor_id": "m2.medium", "network_driver": "calico"},
            **{"coe": "kubernetes", "server_type": "vm", "labels": {"kube_tag": f"v{name.split('-')[1]}"}},
        }
        return self.magnum().cluster_templates.create(name=name, **usual | values)

    def clusters(self) -> list[Any]:
        return list(_whole(self.magnum().clusters.list))

    def settled(self, cluster: str, timeout: float = 30) -> Any:
        def look() -> Any:
            return _whole(lambda: self.magnum().clusters.get(cluster))

        return until(look, lambda found: not found.status.endswith("_IN_PROGRESS"), timeout, cluster)

    def gone(self, cluster: str, timeout: float = 30) -> None:
        until(
            lambda: [known for known in self.clusters() if cluster in (known.name, known.uuid)],
            lambda left: not left,
            timeout,
        )

    def nodes(self, cluster_id: str) -> dict[str, list[Mapping[str, str]]]:
        """Group -> its nodes (id, name, address) that the driver would have made."""
        files = (self.services.played / "nodes" / cluster_id).glob("*.json")
        return {file.stem: json.loads(file.read_text())["nodes"] for file in files}

    def openstack(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.services.installed.python), "-m", "openstackclient.shell", *arguments],
            env={"SHELL": "/bin/sh"} | self.environ,  # its client needs one, and CI has none
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"openstack {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout


def _whole(ask: Callable[[], Any]) -> Any:
    """Call ``ask``, and repeat it while Magnum answers 400.

    A cluster's default groups are created after it, and the conductor deletes them before it; without them
    Magnum counts 0 masters, which its API refuses to return.
    """
    from magnumclient import exceptions

    for _ in range(50):
        try:
            return ask()
        except exceptions.BadRequest:
            time.sleep(0.1)
    return ask()


@contextmanager
def in_project(
    services: Services, neighbours: Neighbours, keystone: Keystone, folder: Path
) -> Iterator[World]:
    name = f"research-{folder.name}-{time.monotonic_ns()}"
    neighbours.reset()
    made = World(services, neighbours, folder, keystone.account(name, name, _ROLES), name)
    made.write_clouds()
    made.forget()
    yield made
    made.tell()


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


@dataclass(frozen=True)
class OpenStack:
    services: Services
    neighbours: Neighbours
    keystone: Keystone

    def project(self, folder: Path) -> AbstractContextManager[World]:
        return in_project(self.services, self.neighbours, self.keystone, folder)


def started(state: Path) -> Iterator[OpenStack]:
    report = Lines(lambda text: print(f"openstack services: {text}", file=sys.__stderr__, flush=True))
    try:
        environment = installed(report)
    except NotToBeHad as error:
        pytest.skip(f"keystone and Magnum cannot be installed here: {error}")
    with serving() as beside, running(environment, state) as services:
        yield OpenStack(services, beside, furnish(services, beside))
