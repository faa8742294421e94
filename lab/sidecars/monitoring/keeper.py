"""Runs Prometheus, kube-state-metrics and the health loop as declared in the cluster."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from lab.sidecars.monitoring import config
from lab.sidecars.monitoring.checked import Files
from lab.sidecars.monitoring.cluster import APP, Cluster, MonitoringObjects
from lab.sidecars.monitoring.health import HealthLoop
from lab.sidecars.monitoring.scraping import TOKEN
from lab.sidecars.monitoring.targets import Ports
from lab.sidecars.shared.child import Child, Folders, Messages, run_until_stopped
from lab.sidecars.shared.files import write_private
from lab.sidecars.shared.server import SERVER_ERRORS

INTERVAL_S = 1.0  # seconds between two reads of the cluster
PROMETHEUS = "prometheus"
PROMTOOL = "promtool"
_RELOAD_S = 20  # reading thousands of rules takes a second


@dataclass(frozen=True)
class Settings(Folders):
    """With the loopback ports of the programs."""

    ports: Ports


class MonitoringKeeper:
    """One Prometheus, one kube-state-metrics and one health loop, which do not outlive this process."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster, self._settings, self._say = cluster, settings, Messages(settings.home)
        log = settings.logs / f"{PROMETHEUS}.log"
        self._prometheus = Child(PROMETHEUS, log, self._say, folder=settings.home)
        self._health = HealthLoop(cluster, settings.home, settings.logs, self._say)
        self._metrics = Child(APP, settings.logs / f"{APP}.log", self._say)
        self._files: Files | None = None
        self._promtool = Path()
        self._unread, self._refused = False, ""

    def run(self, stop: threading.Event) -> None:
        self._say.store(())
        ends = (self._health.end, self._prometheus.end, self._metrics.end)
        run_until_stopped(stop, INTERVAL_S, self.step, self._say, *ends)

    def step(self) -> None:
        """Read the cluster once, and start, restart or end the processes accordingly."""
        world = self._cluster.read()
        missing = [] if world is None else self._missing_programs()
        if world is None or missing:
            self._health.end()
            self._prometheus.keep(None, tuple)
            self._metrics.keep(None, tuple)
            self._say.store(missing)
            return
        messages: list[str] = []
        parts = {"health loop": self._keep_health, PROMETHEUS: self._keep_prometheus, APP: self._keep_metrics}
        for name, keep in parts.items():
            try:
                messages += keep(world)
            except SERVER_ERRORS as error:  # such as a missing account; the other parts do not wait for it
                messages.append(f"{name}: {error or type(error).__name__}")
        messages += [child.trouble for child in (self._prometheus, self._metrics) if child.trouble]
        self._say.store(messages)

    def _keep_prometheus(self, world: MonitoringObjects) -> tuple[str, ...]:
        """Update Prometheus's files and process; returns what is not as declared."""
        promtool = self._settings.program(PROMTOOL).readlink()
        if self._files is None or promtool != self._promtool:
            self._files, self._promtool = Files(self._settings.home, promtool), promtool
        ports = replace(self._settings.ports, health=self._health.port)
        files = config.prometheus_files(world, ports)
        self._unread = self._files.update(files) or self._unread
        if self._files.has_config:
            flags = config.prometheus_flags(world, self._settings.ports)
            wanted = (self._settings.program(PROMETHEUS).readlink(), flags, config.account(world.spec))
            self._prometheus.keep(wanted, lambda: self._start_prometheus(world, flags))
        if self._unread and self._prometheus.running:
            self._reload()
        return *files.notes, *self._files.troubles, *filter(None, [self._refused])

    def _missing_programs(self) -> list[str]:
        names = (PROMETHEUS, PROMTOOL, APP)
        missing = [name for name in names if not self._settings.program(name).is_file()]
        remedy = "`gpuform local up` or `gpuform local env` installs it"
        return [f"{name} is missing: {remedy}" for name in missing]

    def _start_prometheus(self, world: MonitoringObjects, flags: tuple[str, ...]) -> list[str]:
        text = self._cluster.kubeconfig(world.namespace, config.account(world.spec))
        write_private(self._settings.home / config.KUBECONFIG, text)
        write_private(self._settings.home / TOKEN, yaml.safe_load(text)["users"][0]["user"]["token"])
        self._unread = True  # a successful reload shows that it has started
        return [str(self._settings.program(PROMETHEUS)), *flags]

    def _keep_health(self, world: MonitoringObjects) -> tuple[str, ...]:
        self._health.keep(world.health, self._settings.ports.prometheus)
        return ()

    def _keep_metrics(self, world: MonitoringObjects) -> tuple[str, ...]:
        deployment = world.state_metrics
        if deployment is None:
            self._metrics.keep(None, tuple)
            return ()
        kubeconfig = self._settings.home / f"{APP}.kubeconfig"
        account = config.account(deployment["spec"]["template"]["spec"])
        program = self._settings.program(APP)
        flags = config.state_metrics_flags(deployment, self._settings.ports, str(kubeconfig))

        def command() -> list[str]:
            write_private(kubeconfig, self._cluster.kubeconfig(world.namespace, account))
            return [str(program), *flags]

        self._metrics.keep((program.readlink(), flags, account), command)
        return ()

    def _reload(self) -> None:
        """Reload Prometheus's files; if it is still starting, a later step tries again."""
        port = self._settings.ports.prometheus
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_RELOAD_S)
        try:
            connection.request("POST", "/-/reload")
            answer = connection.getresponse()
            body = answer.read().decode(errors="replace").strip()
        except ConnectionError:
            return
        finally:
            connection.close()
        if answer.status == http.client.SERVICE_UNAVAILABLE:
            return
        self._unread, self._refused = False, ""
        if answer.status == http.client.OK:
            self._say("prometheus has read its configuration")
        else:
            self._refused = f"prometheus refuses its configuration: {body[:500]}"
