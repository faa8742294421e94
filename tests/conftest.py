"""Control planes for the tests: started on first use, ended with the session, without leftovers."""

from __future__ import annotations

import gc
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

from gpuform.checkout.paths import Paths
from lab.plane import ControlPlane
from lab.plane.layout import Layout
from lab.plane.processes import scan
from lab.toolchain import Toolchain
from tests.sources.rows import OPEN, ROWS
from tests.tiers import Tiers

if TYPE_CHECKING:
    from tests.openstack.tenant import OpenStack, Tenant

# The gate has the same examples each time; `make test-all` draws others with --hypothesis-profile random.
settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("suite")

TOGETHER = {
    "tests/ansible/": "hosts",
    "tests/openstack/": "openstack",
    "tests/sources/test_cern_magnum.py": "openstack",
}
"""Path prefixes of tests that share booted hosts, and of tests that share keystone and Magnum."""
os.environ["GPUFORM_TODAY"] = "2026-11-25"  # rules about dates must judge the same every day
os.environ.pop("COLUMNS", None)  # a worker of pytest-xdist has it; commands would print narrow tables
SLOW = ("hosts", "cluster", "engine", "tools")
create_default_context = ssl.create_default_context


def create_strict_context(*args: Any, **options: Any) -> ssl.SSLContext:
    """Python's default from 3.13 on, that of the image of the programs in the cluster."""
    context = create_default_context(*args, **options)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context


ssl.create_default_context = create_strict_context


class Kubectl(Protocol):
    """Runs kubectl, returns stdout; a failing one raises AssertionError with its stderr."""

    def __call__(self, *args: str, input: str | None = None) -> str: ...


def pytest_configure(config: pytest.Config) -> None:
    """A terminated session, as by ``timeout``, still ends everything that it started.

    Background jobs of a shell ignore Ctrl-C, and so would all processes that tests start.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Tiers(ROWS, OPEN))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, tests that share servers count as one file, see ``TOGETHER``.

    Files are distributed as collected, see below: xdist's own order is by the number of their tests,
    which leaves the longest ones, of one test each, to the end, where a worker may have two of them while the
    other has none.
    """
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((what for start, what in TOGETHER.items() if file.startswith(start)), file)

    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, files with slow tests start first; quick ones fill the end.

    Of the slow ones, those with tests on the shared control planes come first and after one another, so that
    each worker starts a plane once.

    Every test must have a marker for what it needs, or ``make check`` would silently leave it out.
    """
    if unsaid := [item.nodeid for item in items if not any(map(item.get_closest_marker, (*SLOW, "unit")))]:
        raise pytest.UsageError(f"{unsaid[0]}: has no marker (of {len(unsaid)} such); see pyproject.toml")
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if any(map(item.get_closest_marker, SLOW))}
        shared = [_files(items, name) for name in _SHARED_PLANES]
        items.sort(key=lambda item: (item.path not in slow, *(item.path not in files for files in shared)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Imported objects stay: repeated garbage collection over them is a fifth of a unit test."""
    for name, plane in _SHARED_PLANES.items():
        plane.files = _files(session.items, name)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def kubectl_at(toolchain: Toolchain, kubeconfig: Path, *args: str, input: str | None = None) -> str:
    """Standard output of kubectl, which must succeed."""
    command = [str(toolchain.path("kubectl")), "--kubeconfig", str(kubeconfig), *args]
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Plane:
    paths: Paths
    toolchain: Toolchain
    plane: ControlPlane

    @property
    def kubeconfig(self) -> Path:
        return self.paths.kubeconfig

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return kubectl_at(self.toolchain, self.kubeconfig, *args, input=input)


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The tools from this user's cache; missing ones are built first."""
    return Toolchain(Paths.here())


@dataclass
class SharedPlane:
    """A control plane that runs only during the tests of ``files``: idle, it takes a fifth of a core.

    It starts anew, without the earlier objects, if other files were in between.
    """

    simulator: bool
    files: frozenset[Path] = frozenset()
    made: Plane | None = None
    running: bool = False

    def start(self) -> None:
        if self.made and not self.running:
            self.running = True
            self.made.plane.start(simulator=self.simulator)

    def open(self, state: Path, toolchain: Toolchain) -> Iterator[Plane]:
        here = Paths.here()
        paths = Paths(root=here.root, state=state, cache=here.cache)
        self.made = Plane(paths, toolchain, ControlPlane(paths, toolchain))
        try:
            self.start()
            yield self.made
        finally:
            self.stop()

    def stop(self) -> None:
        if self.made and self.running:
            self.running = False
            self.made.plane.stop(delete=True)
            left = scan(Layout(self.made.paths))
            assert not left, f"left running: {left}"


_SHARED_PLANES = {"control_plane": SharedPlane(False), "simulated_plane": SharedPlane(True)}


def _files(items: Iterable[pytest.Item], fixture: str) -> frozenset[Path]:
    return frozenset(item.path for item in items if fixture in getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, plane in _SHARED_PLANES.items():
        if name in getattr(item, "fixturenames", ()):
            plane.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    for plane in _SHARED_PLANES.values():
        if nextitem is None or nextitem.path not in plane.files:
            plane.stop()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Plane]:
    """A control plane without the node simulator: only kwok's stages play nodes and pods."""
    yield from _SHARED_PLANES["control_plane"].open(tmp_path_factory.mktemp("plane"), toolchain)


@pytest.fixture(scope="session")
def simulated_plane(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Plane]:
    yield from _SHARED_PLANES["simulated_plane"].open(tmp_path_factory.mktemp("simulated"), toolchain)


@pytest.fixture
def kubectl(control_plane: Plane) -> Kubectl:
    """kubectl on ``control_plane``; ``simulated_plane`` has its own as ``simulated_plane.kubectl``."""
    return control_plane.kubectl


AWS_REGION = "us-west-2"


@pytest.fixture(scope="session")
def _moto_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # half a second that most sessions do not need

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def moto(_moto_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an AWS (moto) on loopback, which child processes reach, too; the environment points at it.

    It has only the defaults of every account.
    """
    import httpx

    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", AWS_REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", _moto_server)
    httpx.post(f"{_moto_server}/moto-api/reset").raise_for_status()
    return _moto_server


@pytest.fixture(scope="session")
def openstack_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStack]:
    """A real keystone and a real Magnum, with a stand-in for their neighbours; ended with the session."""
    from tests.openstack.tenant import start_services  # loads OpenStack's clients: most sessions need none

    yield from start_services(tmp_path_factory.mktemp("openstack"))


@pytest.fixture
def tenant(
    openstack_services: OpenStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tenant]:
    """A separate project at the real Magnum API, which the environment's clouds.yaml names."""
    with openstack_services.project(tmp_path) as made:
        for name in [name for name in os.environ if name.startswith("OS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(made.clouds_file))
        yield made
