"""A test's tenant: its own project at a real Magnum API, a clouds.yaml that names it, and recorded requests.

``tenant.cloud`` in ``tenant.clouds_file``, to which OS_CLIENT_CONFIG_FILE points, is the project as a member
sees it. ``instruct`` sets what Magnum's played driver does; ``neighbours`` is the stand-in beside Magnum.
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

from lab.toolchain.progress import PlainReporter
from tests.openstack import settings, tables
from tests.openstack.installed import NotInstallable, install_services
from tests.openstack.neighbours import Neighbours, serve
from tests.openstack.services import Services, run_services
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
class Tenant:
    """One project; ``requests`` and ``clusters`` show only this one."""

    services: Services
    neighbours: Neighbours
    folder: Path
    project: str
    user: str
    cloud: str = CLOUD
    _seen: int = 0

    @property
    def clouds_file(self) -> Path:
        return self.folder / "clouds.yaml"

    @property
    def environ(self) -> dict[str, str]:
        """A child process's environment to find the cloud; without other OS_ variables."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OS_")}
        return inherited | {"OS_CLIENT_CONFIG_FILE": str(self.clouds_file), "OS_CLOUD": self.cloud}

    def write_clouds(self, **more: Any) -> None:
        auth = {
            **{"auth_url": self.services.auth_url, "username": self.user, "password": settings.PASSWORD},
            **{"project_name": self.user, "user_domain_id": "default", "project_domain_id": "default"},
        }
        cloud = {"auth": auth, "region_name": settings.REGION, "identity_api_version": 3, **more}
        self.clouds_file.write_text(yaml.safe_dump({"clouds": {self.cloud: cloud}}, sort_keys=False))

    def instruct(
        self, operation: str = "", *, group: str = "", fail: str = "", hang: bool = False, **more: Any
    ) -> None:
        """What the driver does from now on: ``fail`` with a reason, ``hang``, take ``slow`` seconds.

        ``operation``: create, update or delete (default: create for a failure, delete for a hang). ``group``:
        a node group (default: the cluster). Instructions accumulate; a call without arguments clears them.
        ``api_address`` and ``ca`` ({certificate, key}: files) are for the next cluster.
        """
        file = self.services.played / "told" / f"{self.project}.json"
        if not (operation or group or fail or hang or more):
            file.unlink(missing_ok=True)
            return
        rules = json.loads(file.read_text()) if file.exists() else {}
        if operation or group or fail or hang:
            rule = {"of": group, "fail": fail, "hang": hang}
            if "slow" in more:
                rule["slow"] = more.pop("slow")
            rules[operation or ("create" if fail else "delete")] = rule
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(rules | more))
        temporary.replace(file)

    def requests(self, changes: bool = False) -> list[Request]:
        """Requests to Magnum's API since ``forget_requests``; with ``changes`` only modifying ones."""
        file = self.services.recorded
        lines = file.read_text().splitlines()[self._seen :] if file.exists() else []
        records = [json.loads(line) for line in lines]
        requests = [
            Request(**{k: v for k, v in r.items() if k != "project"})
            for r in records
            if r["project"] == self.project
        ]
        return [request for request in requests if request.changes or not changes]

    def forget_requests(self) -> None:
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
        defaults = {
            **{
                "image_id": tables.IMAGE,
                "keypair_id": tables.KEYPAIR,
                "external_network_id": tables.EXTERNAL,
            },
            **{"flavor_id": "m2.medium", "master_flavor_id": "m2.medium", "network_driver": "calico"},
            **{"coe": "kubernetes", "server_type": "vm", "labels": {"kube_tag": f"v{name.split('-')[1]}"}},
        }
        return self.magnum().cluster_templates.create(name=name, **defaults | values)

    def clusters(self) -> list[Any]:
        return list(_repeat_on_400(self.magnum().clusters.list))

    def wait_until_settled(self, uuid: str, timeout: float = 30) -> Any:
        def read() -> Any:
            return _repeat_on_400(lambda: self.magnum().clusters.get(uuid))

        return until(read, lambda cluster: not cluster.status.endswith("_IN_PROGRESS"), timeout, uuid)

    def wait_until_gone(self, cluster: str, timeout: float = 30) -> None:
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


def _repeat_on_400(call: Callable[[], Any]) -> Any:
    """Call ``call``, and repeat it while Magnum answers 400.

    A cluster's default groups are created after it, and the conductor deletes them before it; without them
    Magnum counts 0 masters, which its API refuses to return.
    """
    from magnumclient import exceptions

    for _ in range(50):
        try:
            return call()
        except exceptions.BadRequest:
            time.sleep(0.1)
    return call()


@contextmanager
def create_tenant(
    services: Services, neighbours: Neighbours, keystone: Keystone, folder: Path
) -> Iterator[Tenant]:
    name = f"research-{folder.name}-{time.monotonic_ns()}"
    neighbours.reset()
    tenant = Tenant(services, neighbours, folder, keystone.account(name, name, _ROLES), name)
    tenant.write_clouds()
    tenant.forget_requests()
    yield tenant
    tenant.instruct()


@dataclass
class Keystone:
    """The few administrator calls to keystone that the tests need."""

    url: str
    _client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        password = {"user": {"name": "admin", "domain": {"id": "default"}, "password": settings.PASSWORD}}
        scope = {"project": {"name": "admin", "domain": {"id": "default"}}}
        body = {"auth": {"identity": {"methods": ["password"], "password": password}, "scope": scope}}
        token = httpx.post(f"{self.url}/auth/tokens", json=body, timeout=60).raise_for_status()
        header = {"X-Auth-Token": token.headers["X-Subject-Token"]}
        self._client = httpx.Client(base_url=self.url, headers=header, timeout=60)

    def make(self, kind: str, **values: Any) -> str:
        answer = self._client.post(f"/{kind}s", json={kind: values}).raise_for_status()
        return str(answer.json()[kind]["id"])

    def account(self, name: str, project: str, roles: Sequence[str]) -> str:
        role_ids = {r["name"]: r["id"] for r in self._client.get("/roles").raise_for_status().json()["roles"]}
        project_id = self.make("project", name=project, domain_id="default")
        user_id = self.make("user", name=name, domain_id="default", password=settings.PASSWORD)
        for role in roles:
            self._client.put(
                f"/projects/{project_id}/users/{user_id}/roles/{role_ids[role]}"
            ).raise_for_status()
        return project_id

    def service(self, kind: str, name: str, url: str) -> None:
        service_id = self.make("service", type=kind, name=name)
        endpoint = {"service_id": service_id, "region_id": settings.REGION, "url": url}
        self.make("endpoint", interface="public", **endpoint)
        self.make("endpoint", interface="internal", **endpoint)


def create_accounts(services: Services, neighbours: Neighbours) -> Keystone:
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

    def project(self, folder: Path) -> AbstractContextManager[Tenant]:
        return create_tenant(self.services, self.neighbours, self.keystone, folder)


def start_services(state: Path) -> Iterator[OpenStack]:
    report = PlainReporter(lambda text: print(f"openstack services: {text}", file=sys.__stderr__, flush=True))
    try:
        environment = install_services(report)
    except NotInstallable as error:
        pytest.skip(f"keystone and Magnum cannot be installed here: {error}")
    with serve() as beside, run_services(environment, state) as services:
        yield OpenStack(services, beside, create_accounts(services, beside))
