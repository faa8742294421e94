"""Runs each declared controller while its Deployment exists, and shows in its pods whether it serves."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import ssl
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from lab.sidecars.controllers.egress import Egress
from lab.sidecars.controllers.release import Cluster, Release
from lab.sidecars.controllers.rows import CONTROLLERS, Controller, ProgramContext
from lab.sidecars.shared.child import Child, Folders, Messages, free_port, run_until_stopped
from lab.sidecars.shared.files import link, write_private
from lab.sidecars.shared.server import SERVER_ERRORS

INTERVAL_S = 0.5  # seconds between two reads of the cluster
_PROBE_S = 1.0


@dataclass(frozen=True)
class Settings(Folders):
    """``shared`` are loopback ports that controllers know of each other, by the containers' ports.

    ``proxy`` is the address of the HTTP proxy for Services.
    """

    shared: dict[int, int] = field(default_factory=dict)
    proxy: str = ""


class ControllerProcess:
    """One version of one controller: a process with its root folder, ports, account and probe."""

    def __init__(self, controller: Controller, release: Release, settings: Settings, say: Messages) -> None:
        self.key = hashlib.sha256(release.version_text.encode()).hexdigest()[:12]
        self._controller, self._release, self._settings = controller, release, settings
        self._node = ""
        self._program = settings.program(controller.name)
        self._root = settings.home / f"{controller.name}-{self.key}"
        self._ports: dict[int, int] = {}
        log = settings.logs / f"{controller.name}.log"
        self.child = Child(controller.name, log, say, folder=self._root)

    def keep(self, cluster: Cluster, current: Release) -> None:
        """Mount the Secrets; start the program if it does not run, or if it has another binary.

        A pod's program starts once the pod has a node.
        """
        self._node = current.node or self._node
        if not self._node:
            return
        self._root.mkdir(mode=0o700, exist_ok=True)
        for path, content in current.secret.items():
            _write_file(self._root, path, content)
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
        for folder in self._program.resolve().parent.iterdir():
            if folder.is_dir():
                link(self._root / folder.name, folder)
        for volume in release.container.get("volumeMounts", []):
            if not volume.get("subPath"):
                (self._root / volume["mountPath"].lstrip("/")).mkdir(mode=0o700, parents=True, exist_ok=True)
        settings, row = self._settings, self._controller
        shared = partial(_assign_port, settings.shared)
        context = ProgramContext(
            release.namespace, str(self._root), partial(_assign_port, self._ports), shared, settings.proxy
        )
        for path, text in release.mounted.items():
            if Path(path).name == self._controller.config:
                config = yaml.safe_load(text) or {}
                self._controller.adapt(config, context)
                text = yaml.safe_dump(config)
            _write_file(self._root, path, text.encode())
        kubeconfig = self._root / "kubeconfig"
        write_private(kubeconfig, cluster.server.kubeconfig(release.namespace, release.account))
        arguments = [str(word) for word in release.container.get("args", [])]
        for path in release.mounted:
            arguments = [argument.replace(path, f"{self._root}{path}") for argument in arguments]
        self.child.environment = {**release.variables(self._node), **row.variables(context)}
        for name, value in self.child.environment.items():  # as a kubelet, which expands them
            arguments = [argument.replace(f"$({name})", value) for argument in arguments]
        return [str(self._program), *arguments, f"--kubeconfig={kubeconfig}", *row.arguments(context)]


class ControllerSupervisor:
    """One controller. A changed release starts a new process, which takes over once it serves."""

    def __init__(self, controller: Controller, cluster: Cluster, settings: Settings, say: Messages) -> None:
        self._controller, self._cluster, self._settings, self._say = controller, cluster, settings, say
        self._played: list[ControllerProcess] = []
        self._routed: ControllerProcess | None = None
        """What the Services lead to since the last step; others may end."""

    @property
    def trouble(self) -> str:
        return next((process.child.trouble for process in self._played if process.child.trouble), "")

    def step(self) -> dict[str, int]:
        """Make the processes match the release; returns the routes. Raises ``server.SERVER_ERRORS``."""
        release = self._cluster.release(self._controller)
        if release is None:
            self.end()
            return {}
        self._start(release)
        for process in self._played:
            process.keep(self._cluster, release)
        serving = next((process for process in reversed(self._played) if process.serves()), None)
        if serving is self._played[-1] and serving is self._routed:
            for old in self._played[:-1]:
                old.end()
            self._played = [serving]
        self._routed = serving
        ready = serving is not None and (
            not self._controller.trusted or self._cluster.has_ca_bundle(self._controller)
        )
        for pod in release.pods:
            self._cluster.set_ready(pod, ready, serving.metrics if serving else 0)
        return serving.routes(release) if serving and release.ready else {}

    def end(self) -> None:
        for process in self._played:
            process.end()
        self._played = []

    def _start(self, release: Release) -> None:
        process = ControllerProcess(self._controller, release, self._settings, self._say)
        keys = [process.key for process in self._played]
        if process.key in keys:  # the newest already, or a rollback to one that still runs
            self._played.append(self._played.pop(keys.index(process.key)))
        else:
            self._played.append(process)


class ControllersKeeper:
    """All linked controllers and the API server's way to them; they do not outlive this process."""

    def __init__(self, cluster: Cluster, settings: Settings, egress: Egress) -> None:
        self._settings, self._egress, self._say = settings, egress, Messages(settings.home)
        self._supervisors = {
            name: ControllerSupervisor(row, cluster, settings, self._say) for name, row in CONTROLLERS.items()
        }

    def run(self, stop: threading.Event) -> None:
        ends = [supervisor.end for supervisor in self._supervisors.values()]
        run_until_stopped(stop, INTERVAL_S, self.step, self._say, *ends)

    def step(self) -> None:
        """Read the cluster once; a controller that cannot be read or started leaves the others alone."""
        routes: dict[str, int] = {}
        messages = []
        for name, controller in self._supervisors.items():
            if not self._settings.program(name).is_file():
                continue  # no stack has declared it
            try:
                routes |= controller.step()
                messages += [controller.trouble] if controller.trouble else []
            except (*SERVER_ERRORS, yaml.YAMLError, StopIteration) as error:
                # The server is unreachable or refuses, or the release is incomplete: what runs goes on.
                routes |= {at: port for at, port in self._egress.routes.items() if at not in routes}
                messages.append(f"{name}: {error or type(error).__name__}")
        self._egress.routes = routes
        self._say.store(messages)


def _assign_port(ports: dict[int, int], port: int) -> int:
    """A free loopback port instead of the container's; the same one when it is asked for again."""
    if port not in ports:
        ports[port] = free_port()
    return ports[port]


def _write_file(root: Path, path: str, content: bytes) -> None:
    """Write a file of the container, unless it has this content; a reader sees the old content or the new."""
    file = root / path.lstrip("/")
    if not file.is_file() or file.read_bytes() != content:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, content.decode())
