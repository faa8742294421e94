"""Runs each declared controller while its Deployment exists, and shows in its pods whether it serves."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from lab.sidecars.controllers.egress import Egress
from lab.sidecars.controllers.release import Cluster, Release
from lab.sidecars.controllers.rows import CONTROLLERS, Controller, Place
from lab.sidecars.shared.child import Child, Folders, Messages, follow, free_port
from lab.sidecars.shared.files import write_private
from lab.sidecars.shared.server import TROUBLE

EVERY_S = 0.5  # between two looks
_PROBE_S = 1.0


@dataclass(frozen=True)
class Settings(Folders):
    """``shared`` are loopback ports that controllers know of each other, by the containers' ports.

    ``proxy`` is the address of the HTTP proxy for Services.
    """

    shared: dict[int, int] = field(default_factory=dict)
    proxy: str = ""


class Played:
    """One version of one controller: a process with its root folder, ports, account and probe."""

    def __init__(self, controller: Controller, release: Release, settings: Settings, say: Messages) -> None:
        self.key = hashlib.sha256(release.program.encode()).hexdigest()[:12]
        self._controller, self._release, self._set = controller, release, settings
        self._program = settings.program(controller.name)
        self._root = settings.home / f"{controller.name}-{self.key}"
        self._ports: dict[int, int] = {}
        log = settings.logs / f"{controller.name}.log"
        self.child = Child(controller.name, log, say, folder=self._root)

    def keep(self, cluster: Cluster, secret: Mapping[str, bytes]) -> None:
        """Mount the Secrets; start the program if it does not run, or if it has another binary."""
        self._root.mkdir(mode=0o700, exist_ok=True)
        for path, content in secret.items():
            _mount(self._root, path, content)
        self.child.keep(self._program.readlink(), lambda: self._command(cluster))

    def end(self) -> None:
        self.child.end()
        shutil.rmtree(self._root, ignore_errors=True)

    def serves(self) -> bool:
        """The readiness probe of its container; true if it has none and runs."""
        probe = (self._release.container.get("readinessProbe") or {}).get("httpGet")
        if not self.child.running or not probe:
            return self.child.running
        port = self._ports.get(self._release.port(probe["port"]))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PROBE_S)
        if probe.get("scheme") == "HTTPS":  # as a kubelet, which does not verify the certificate
            unverified = ssl._create_unverified_context()  # noqa: S323
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=_PROBE_S, context=unverified)
        try:
            connection.request("GET", probe.get("path", "/"))
            return connection.getresponse().status < http.client.BAD_REQUEST
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def metrics(self) -> int:
        """Loopback port of its metrics; 0 without one."""
        return self._ports.get(self._controller.metrics, 0)

    def routes(self, release: Release) -> dict[str, int]:
        """The release's Services, to this process's ports."""
        return {target: self._ports[port] for target, port in release.served() if port in self._ports}

    def _command(self, cluster: Cluster) -> list[str]:
        """Write its files, with fresh ports; returns the container's arguments, which name the files."""
        release, self._ports = self._release, {}
        for volume in release.container.get("volumeMounts", []):
            if not volume.get("subPath"):
                (self._root / volume["mountPath"].lstrip("/")).mkdir(mode=0o700, parents=True, exist_ok=True)
        settings, row = self._set, self._controller
        shared = partial(_free, settings.shared)
        place = Place(release.namespace, str(self._root), partial(_free, self._ports), shared, settings.proxy)
        for path, text in release.mounted.items():
            if Path(path).name == self._controller.config:
                config = yaml.safe_load(text) or {}
                self._controller.adapt(config, place)
                text = yaml.safe_dump(config)
            _mount(self._root, path, text.encode())
        kubeconfig = self._root / "kubeconfig"
        write_private(kubeconfig, cluster.server.kubeconfig(release.namespace, release.account))
        words = [str(word) for word in release.container.get("args", [])]
        for path in release.mounted:
            words = [word.replace(path, f"{self._root}{path}") for word in words]
        self.child.environment = row.variables(place)
        for name, value in self.child.environment.items():  # as a kubelet, which expands them
            words = [word.replace(f"$({name})", value) for word in words]
        return [str(self._program), *words, f"--kubeconfig={kubeconfig}", *row.arguments(place)]


class Kept:
    """One controller. A changed release starts a new process, which takes over once it serves."""

    def __init__(self, controller: Controller, cluster: Cluster, settings: Settings, say: Messages) -> None:
        self._controller, self._cluster, self._set, self._say = controller, cluster, settings, say
        self._played: list[Played] = []
        self._routed: Played | None = None
        """What the Services lead to since the last step; others may end."""

    @property
    def trouble(self) -> str:
        return next((one.child.trouble for one in self._played if one.child.trouble), "")

    def step(self) -> dict[str, int]:
        """Make the processes match the release; returns the routes. Raises ``server.TROUBLE``."""
        release = self._cluster.release(self._controller)
        if release is None:
            self.end()
            return {}
        self._start(release)
        for one in self._played:
            one.keep(self._cluster, release.secret)
        serving = next((one for one in reversed(self._played) if one.serves()), None)
        if serving is self._played[-1] and serving is self._routed:
            for old in self._played[:-1]:
                old.end()
            self._played = [serving]
        self._routed = serving
        ready = serving is not None and (
            not self._controller.trusted or self._cluster.trusts(self._controller)
        )
        for pod in release.pods:
            self._cluster.show(pod, ready, serving.metrics if serving else 0)
        return serving.routes(release) if serving and release.ready else {}

    def end(self) -> None:
        for one in self._played:
            one.end()
        self._played = []

    def _start(self, release: Release) -> None:
        made = Played(self._controller, release, self._set, self._say)
        keys = [one.key for one in self._played]
        if made.key in keys:  # the newest already, or a rollback to one that still runs
            self._played.append(self._played.pop(keys.index(made.key)))
        else:
            self._played.append(made)


class Keeper:
    """All linked controllers and the API server's way to them; they do not outlive this process."""

    def __init__(self, cluster: Cluster, settings: Settings, egress: Egress) -> None:
        self._set, self._egress, self._say = settings, egress, Messages(settings.home)
        self._kept = {name: Kept(row, cluster, settings, self._say) for name, row in CONTROLLERS.items()}

    def run(self, over: threading.Event) -> None:
        follow(over, EVERY_S, self.step, self._say, *(kept.end for kept in self._kept.values()))

    def step(self) -> None:
        """Read the cluster once; a controller that cannot be read or started leaves the others alone."""
        routes: dict[str, int] = {}
        said = []
        for name, kept in self._kept.items():
            if not self._set.program(name).is_file():
                continue  # no stack has declared it
            try:
                routes |= kept.step()
                said += [kept.trouble] if kept.trouble else []
            except (*TROUBLE, yaml.YAMLError, StopIteration) as error:
                # The server is unreachable or refuses, or the release is incomplete: what runs goes on.
                routes |= {
                    target: port for target, port in self._egress.routes.items() if target not in routes
                }
                said.append(f"{name}: {error or type(error).__name__}")
        self._egress.routes = routes
        self._say.note(said)


def _free(ports: dict[int, int], wanted: int) -> int:
    """A free loopback port instead of the container's; the same one when it is asked for again."""
    if wanted not in ports:
        ports[wanted] = free_port()
    return ports[wanted]


def _mount(root: Path, path: str, content: bytes) -> None:
    """Write a file of the container, unless it has this content; a reader sees the old content or the new."""
    file = root / path.lstrip("/")
    if not file.is_file() or file.read_bytes() != content:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, content.decode())
