"""A bed: hosts on their own bridge, with an apt repository beside them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.plane import lock
from tests.bed import cgroups, layout, network, packages, places, refusal, web
from tests.bed.base import base, sources
from tests.bed.host import Host, group, started
from tests.bed.repository import Repository

FIRST = 11  # last part of the first host's address


class Bed:
    """Hosts gpu-1, gpu-2, ... reached by ssh; all files are in one folder; ``down`` removes everything."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = places.bed(name)
        self._lock = places.shared() / "locks" / name

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def record(self) -> dict[str, Any]:
        """The record written when the bed was made; empty if there is none."""
        try:
            result: dict[str, Any] = json.loads((self.folder / "bed.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return result

    @property
    def hosts(self) -> list[Host]:
        return [Host(name, address, self.folder) for name, address in self.record.get("hosts", {}).items()]

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    @property
    def gateway(self) -> str:
        return str(self.record["gateway"])

    @property
    def url(self) -> str:
        """Base URL of the files in ``web``, as hosts see it."""
        return f"http://{self.gateway}"

    @property
    def web(self) -> Path:
        return self.folder / "web"

    @property
    def repository(self) -> Repository:
        return self.repository_named("nvidia")

    def furnish_repository(
        self,
        *,
        drivers: Iterable[str] = ("580.95.05",),
        toolkits: Iterable[str] = ("1.19.1",),
        cuda: Iterable[str] = ("12.2",),
    ) -> Repository:
        """Fill ``repository`` with NVIDIA's packages of these versions, and publish it."""
        repository = self.repository
        for version in drivers:
            repository.put(*packages.driver(version))
        for version in toolkits:
            repository.put(*packages.toolkit(version, packages.nvidia_ctk(), packages.cdi_units()))
        for version in cuda:
            repository.put(packages.cuda(version))
        repository.put(packages.mig_manager())
        repository.publish()
        return repository

    def repository_named(self, name: str) -> Repository:
        return Repository(self.web / name, self.folder / "private" / name, f"{self.url}/{name}/")

    @property
    def abandoned(self) -> bool:
        """Whether the bed's owner process has ended, or ended before it was recorded."""
        if not self.record:
            return self.folder.exists()
        owner = self.record.get("owner")
        return owner is not None and started(owner[0]) != owner[1]

    def up(self, hosts: int, *, owner: int | None = None) -> list[Host]:
        """Boot hosts until the bed has this many; returns all of them once each answers.

        ``owner``: the process that uses the bed; the next ``sweep`` after its end takes the bed down.
        """
        refusal.check()
        refusal.make_room()
        refusal.boot(base())
        lower = f"{layout.layer()}:{base()}"
        with lock.file_lock(self._lock, busy=lambda: None):
            record = self.record
            if "subnet" not in record:
                record = self._begin(owner)
            network.ensure(network.Subnet(*record["subnet"]), self.folder)
            for number in range(len(record["hosts"]), hosts):
                record["hosts"][f"gpu-{number + 1}"] = record["prefix"] + str(FIRST + number)
            self._write(record)
            web.ensure(self.folder, self.gateway)
            if not (self.web / "machine/Packages").exists():
                machine = self.repository_named("machine")
                machine.put(*packages.machine(os.uname().release))
                machine.publish()
            for host in self.hosts:
                layout.furnish(host, self.gateway, self._apt(), self.repository_named("machine").key)
            layout.ssh_files(self.folder, self.hosts)
            (self.folder / "inventory.json").write_text(json.dumps(self.inventory(), indent=2) + "\n")
            for host in self.hosts:
                if not host.running:
                    host.start(lower, record["bridge"])
            for host in self.hosts:
                host.wait()
        return self.hosts

    def down(self, *, only_abandoned: bool = False) -> bool:
        """End everything of the bed and delete it; a missing bed is no error. Returns whether it was done."""
        with lock.file_lock(self._lock, busy=lambda: None):
            if only_abandoned and not self.abandoned:
                return False
            self._end()
        return True

    def _end(self) -> None:
        cgroups.end(group(self.folder))
        network.release(self.folder)
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def inventory(self) -> dict[str, Any]:
        options = f"-o UserKnownHostsFile={self.known_hosts} -o StrictHostKeyChecking=yes"
        hostvars = {
            host.name: {
                "ansible_host": host.address,
                "ansible_port": host.port,
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(self.key),
                "ansible_ssh_common_args": options,
                "ansible_become": False,
            }
            for host in self.hosts
        }
        groups = {name: {"hosts": list(hostvars)} for name in ("kube_node", "gpu")}
        return {"_meta": {"hostvars": hostvars}, "all": {"children": list(groups)}, **groups}

    def _begin(self, owner: int | None) -> dict[str, Any]:
        self._end()  # left by an interrupted start
        self.folder.mkdir(parents=True, mode=0o700)
        record: dict[str, Any] = {"owner": [owner, started(owner)] if owner else None, "hosts": {}}
        self._write(record)
        layout.keys(self.folder)
        subnet = network.claim(self.folder)
        record |= {
            "subnet": [subnet.second, subnet.third],
            "bridge": subnet.bridge,
            "gateway": subnet.gateway,
            "prefix": subnet.address(0)[:-1],
        }
        self._write(record)
        return record

    def _write(self, record: dict[str, Any]) -> None:
        new = self.folder / "bed.json.new"
        new.write_text(json.dumps(record, indent=2) + "\n")
        new.replace(self.folder / "bed.json")

    def _apt(self) -> str:
        suites = [
            f"deb http://mirror.bed/debian/{number} {suite} main contrib non-free non-free-firmware\n"
            for number, source in enumerate(sources())
            for suite in source.suites
        ]
        return "".join([*suites, f"deb [signed-by=/{layout.MACHINE_KEY}] http://mirror.bed/machine ./\n"])


def sweep() -> list[str]:
    swept = []
    for name in places.names():
        bed = Bed(name)
        if bed.abandoned and bed.down(only_abandoned=True):
            swept.append(name)
    return swept
