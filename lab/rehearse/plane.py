"""A temporary control plane for one rehearsal, or one offline preview with its base, with its own state.

It is independent of the one of `make up`: other ports, other data, its own engine state. Whatever a killed
run has left is removed by the next one of the same stack.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import preserve_logs
from gpuform.engine import Engine
from gpuform.engine.files import Tools
from gpuform.stack.preview.run import SimulatedBase, checkout_base
from gpuform.stack.preview.snapshot import Snapshot, declared_snapshot, read_snapshot
from gpuform.usage.prometheus import LOCAL_REMEDY, Prometheus, local_client
from gpuform.usage.rehearsal import ScrapeResult
from infra.config import load
from infra.model.environment import Environment
from infra.plan.scraping import JOB
from lab.plane import ControlPlane, controlling, lock
from lab.plane.processes import PROMETHEUS
from lab.rehearse import foreign, nodes
from lab.rehearse.cluster import Cluster
from lab.rehearse.pods import count_pods
from lab.rehearse.watch import Watch

Say = Callable[[str], None]
TIMEOUT_S = 20.0
"""Until a node is scraped: discovery takes a few seconds, a scrape six at most."""
_INTERVAL_S = 0.5
_QUIET_S, _PLACED_S = 5.0, 120.0
_QUERY = f'up{{job="{JOB}"}} == 1'


def paths_of_run(paths: Paths, stack: str, verb: str = "rehearse") -> Paths:
    """The folders of a run: a state of its own below the checkout's, the cache shared."""
    return Paths(paths.root, paths.state.resolve() / verb / stack, paths.cache)


@contextmanager
def plane(
    paths: Paths, tools: Tools, stack: str, say: Say, controllers: Sequence[str] = (), verb: str = "rehearse"
) -> Iterator[Paths]:
    """A fresh control plane with a way to these controllers while the context lasts; yields its folders.

    One run of a verb for a stack at a time: a second one waits. On SIGTERM, or SIGHUP from a closed terminal,
    it still ends what it started. Raises InputError if the state cannot be written, Failure if a member does
    not come up.
    """
    writable.make_state(paths.state)
    run_paths = paths_of_run(paths, stack, verb)
    lock_file = run_paths.state.with_name(f"{stack}.lock")
    message = f"waiting for another `gpuform {verb} {stack}` to end"
    with lock.file_lock(lock_file, lambda: say(message)), _signals_as_interrupt():
        control_plane = ControlPlane(run_paths, tools)
        _remove(control_plane, run_paths)  # of a run that was killed
        try:
            with preserve_logs(run_paths):
                if controllers:
                    control_plane.start_with_controllers(*controllers, progress=say)
                control_plane.start(progress=lambda text: None)
                yield run_paths
        finally:
            _remove(control_plane, run_paths)


def _remove(control_plane: ControlPlane, run_paths: Paths) -> None:
    control_plane.stop(delete=True)
    shutil.rmtree(run_paths.state, ignore_errors=True)


@contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP as Ctrl-C unless ignored; only the main thread may set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    handled = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    for number in handled:
        signal.signal(number, interrupted)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


@contextmanager
def preview_base(
    paths: Paths, tools: Tools, stack: str, base: str | None, say: Say, manifests: Sequence[Path] = ()
) -> Iterator[SimulatedBase]:
    """A temporary control plane and state on which the base's stack, and manifests of others, are created."""
    with nullcontext() if base is None else checkout_base(paths.root, base) as folder:
        say("starting a control plane for the preview")
        with plane(paths, tools, stack, say, verb="preview") as preview_paths:
            control_plane = ControlPlane(preview_paths, tools)
            _install_controllers(control_plane, paths.root / f"Pulumi.{stack}.yaml")
            if folder is None:
                yield SimulatedBase(preview_paths, None, declared_snapshot(None))
                return
            say(f"simulating the base of {stack} ({base})")
            _install_controllers(control_plane, folder / f"Pulumi.{stack}.yaml")
            before, snapshot = _create_base(replace(preview_paths, root=folder), tools, stack, say, manifests)
            yield SimulatedBase(preview_paths, before, snapshot)


def _install_controllers(control_plane: ControlPlane, file: Path) -> None:
    """Install the kinds of monitoring and run the controllers that the stack has.

    The stand-in for the chart of monitoring has no CRDs, and a controller's own chart needs its program.
    """
    try:
        env = load(file)
    except InputError:
        return  # reported by the next reader of the file
    if names := controlling.declared_controllers(env):
        control_plane.start_with_controllers(*names)
    if env.monitoring:
        control_plane.define_monitoring_kinds()


def _create_base(
    paths: Paths, tools: Tools, stack: str, say: Say, manifests: Sequence[Path]
) -> tuple[Environment | None, Snapshot]:
    file = paths.root / f"Pulumi.{stack}.yaml"
    if not file.exists():
        return None, declared_snapshot(None)
    before = load(file)
    others = foreign.read(before, manifests)
    if not before.cluster.created:
        say(f"the base of {stack} is not simulated: own hosts and existing clusters cannot be simulated here")
        return before, declared_snapshot(others.counted(before))
    if nodes.simulated_nodes(before).by_cloud:
        nodes.apply_nodes(before, paths, tools, lenient=True)
    Engine(paths, tools, say=say, offline=True).up(stack, on_event=lambda event: None)
    if manifests:
        _start_others(others, before, paths, tools)
    return before, read_snapshot(paths.kubeconfig)


def _start_others(others: foreign.Foreign, env: Environment, paths: Paths, tools: Tools) -> None:
    """Returns once no further pod of theirs is placed."""
    with closing(Cluster(paths.kubeconfig, tools.path("kubectl"))) as cluster:
        others.apply(cluster, f"gpuform check {env.name}")
        wanted, watch = count_pods(others.counted(env)), Watch(cluster, env.name)
        with watch.running():
            watch.wait_until(
                lambda now: sum(pod.is_placed for pod in now.workloads) >= wanted, _QUIET_S, _PLACED_S
            )


def wait_until_scraped(control_plane: ControlPlane, names: Collection[str]) -> ScrapeResult:
    """Wait until every node was scraped, at most ``TIMEOUT_S``."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        status = control_plane.status()
        port = next((member.port for member in status.members if member.name == PROMETHEUS), None)
        nodes = _scraped_nodes(port) if port else None
        missing = tuple(sorted(set(names) - (nodes or set())))
        if (nodes is not None and not missing) or time.monotonic() > deadline:
            trouble = (*status.sidecar_messages, *(["it does not answer"] if nodes is None else []))
            return ScrapeResult(len(names), missing, "; ".join(trouble))
        time.sleep(_INTERVAL_S)


def _scraped_nodes(port: int) -> set[str] | None:
    """Nodes with a successful last scrape of their exporter; None if Prometheus does not answer."""
    with local_client(f"http://127.0.0.1:{port}") as transport:
        try:
            samples = Prometheus(transport, LOCAL_REMEDY).query(_QUERY)
        except Failure:
            return None
        return {sample.labels.get("node", "") for sample in samples}
