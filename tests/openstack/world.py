"""A test's world: its own project at a real Magnum API, a clouds.yaml that names it, and recorded requests.

``world.cloud`` in ``world.clouds`` (the environment's OS_CLIENT_CONFIG_FILE points there) is the project as
a member sees it. ``tell`` instructs Magnum's played driver; ``neighbours`` is the stand-in beside Magnum.
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
