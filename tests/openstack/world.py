"""What a test has: a project of its own at a real Magnum API, a clouds.yaml that names it, what was asked.

``world.cloud`` in ``world.clouds`` (the environment's OS_CLIENT_CONFIG_FILE points there) is the project as
a member sees it. ``tell`` tells Magnum's driver, which is played; ``neighbours`` is the stand-in beside
Magnum.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.openstack import settings, tables
from tests.openstack.catalogue import Keystone
from tests.openstack.neighbours import Neighbours
from tests.openstack.services import Services
from tests.waiting import until

CLOUD = "played"
TEMPLATE = "kubernetes-1.30.2-2"
VERSION = "container-infra 1.11"
_ROLES = ("member", "reader")


@dataclass(frozen=True)
class Request:
    """One request to Magnum's API, as it came behind its authentication."""

    method: str
    path: str
    query: str
    version: str
    agent: str
    body: Any
    status: int

    @property
    def changes(self) -> bool:
        """Whether it asks for more than to look."""
        return self.method not in ("GET", "HEAD")


@dataclass
class World:
    """One project; everything that ``requests`` and ``clusters`` show is of this one."""

    services: Services
    neighbours: Neighbours
    folder: Path
    project: str
    user: str
    cloud: str = CLOUD
    _seen: int = 0

    @property
    def clouds(self) -> Path:
        """The clouds.yaml."""
        return self.folder / "clouds.yaml"

    @property
    def environ(self) -> dict[str, str]:
        """What a child process needs to find the cloud; no other OS_ variable is left in it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OS_")}
        return kept | {"OS_CLIENT_CONFIG_FILE": str(self.clouds), "OS_CLOUD": self.cloud}

    def write_clouds(self, **more: Any) -> None:
        """The clouds.yaml, with further settings of the cloud."""
        auth = {
            **{"auth_url": self.services.auth_url, "username": self.user, "password": settings.PASSWORD},
            **{"project_name": self.user, "user_domain_id": "default", "project_domain_id": "default"},
        }
        cloud = {"auth": auth, "region_name": settings.REGION, "identity_api_version": 3, **more}
        self.clouds.write_text(yaml.safe_dump({"clouds": {self.cloud: cloud}}, sort_keys=False))

    def tell(self, on: str = "", *, of: str = "", fail: str = "", hang: bool = False, **more: Any) -> None:
        """What the driver does from now on: ``fail`` with a reason, ``hang``, take ``slow`` seconds.

        ``on`` is create, update or delete (left out: create for a failure, delete for a hang), ``of`` a node
        group (left out: the cluster). Each call adds to what it was told; without any argument all is
        forgotten. ``api_address`` and ``ca`` ({certificate, key}: files) are what the next cluster gets.
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
        """What Magnum's API was asked since the last ``forget``; with ``changes`` without the looks."""
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
        """``requests`` begins anew."""
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
        """A cluster template of this project, as an administrator of a cloud offers them."""
        usual = {
            **{
                "image_id": tables.IMAGE,
                "keypair_id": tables.KEYPAIR,
                "external_network_id": tables.EXTERNAL,
            },
            **{"flavor_id": "m2.medium", "master_flavor_id": "m2.medium", "network_driver": "calico"},
            **{"coe": "kubernetes", "server_type": "vm", "labels": {"kube_tag": "v1.30.2"}},
        }
        return self.magnum().cluster_templates.create(name=name, **usual | values)

    def clusters(self) -> list[Any]:
        """Those of the project."""
        return list(_whole(self.magnum().clusters.list))

    def settled(self, cluster: str, timeout: float = 30) -> Any:
        """The cluster when Magnum no longer works on it."""

        def look() -> Any:
            return _whole(lambda: self.magnum().clusters.get(cluster))

        return until(look, lambda found: not found.status.endswith("_IN_PROGRESS"), timeout, cluster)

    def gone(self, cluster: str, timeout: float = 30) -> None:
        """Wait until Magnum knows no such cluster."""
        until(
            lambda: [known for known in self.clusters() if cluster in (known.name, known.uuid)],
            lambda left: not left,
            timeout,
        )

    def nodes(self, cluster_id: str) -> dict[str, list[Mapping[str, str]]]:
        """Group -> its nodes (id, name, address), as the driver would have made them."""
        files = (self.services.played / "nodes" / cluster_id).glob("*.json")
        return {file.stem: json.loads(file.read_text())["nodes"] for file in files}

    def openstack(self, *arguments: str) -> str:
        """The real ``openstack`` command as this project's member; returns what it prints."""
        done = subprocess.run(
            [str(self.services.installed.python), "-m", "openstackclient.shell", *arguments],
            env={"SHELL": "/bin/sh"} | self.environ,  # its client asks for one, and CI has none
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"openstack {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout


def _whole(ask: Callable[[], Any]) -> Any:
    """What is asked for, asked again where Magnum answers 400: a cluster's default groups come after itself,
    and its conductor deletes them before it; without them it counts 0 masters, which its API refuses to say.
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
    """A world with a new project and nothing in it."""
    name = f"research-{folder.name}-{time.monotonic_ns()}"
    neighbours.reset()
    made = World(services, neighbours, folder, keystone.account(name, name, _ROLES), name)
    made.write_clouds()
    made.forget()
    yield made
    made.tell()
