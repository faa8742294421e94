"""The first cluster from official binaries, served on loopback by the test, into an empty cache."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import CATALOGUE, MAIN_JOB
from lab.toolchain.releases import Release
from tests.fakes.http_server import serving
from tests.journey.conftest import Checkout, close, make_checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]
# gpuform with the releases of the first argument.
PROGRAM = """
import json, sys
from functools import partial
from gpuform.cli import up
from lab.toolchain.releases import Release
rows = json.load(open(sys.argv.pop(1)))
releases = [Release(**row | {key: tuple(row[key]) for key in ("tools", "programs", "chart")}) for row in rows]
up.Toolchain = partial(up.Toolchain, releases=releases)
from gpuform.cli.main import main
main()
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with serving(handler) as at:
        yield f"http://{at}"


def release(folder: Path, address: str, *names: str) -> Release:
    """The binaries that were built here, in an archive as their projects publish it."""
    file = folder / f"{names[0]}.tar"
    with tarfile.open(file, "w") as packed:
        for name in names:
            packed.add(Toolchain(Paths.here()).path(name), f"{names[0]}-linux/{name}")
    tool = CATALOGUE[names[0]]
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Release(names, tool.plugin or tool.module.displayed_version, f"{address}/{file.name}", digest)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = make_checkout(tmp_path)
    cache = tmp_path / "cache"
    made = Checkout(
        Paths(root=made.paths.root, state=made.paths.state, cache=cache), {"GPUFORM_CACHE": str(cache)}
    )
    try:
        yield made
    finally:
        close(made)


def test_the_table_of_pools_comes_without_a_build_of_what_is_official(
    served: str, checkout: Checkout, tmp_path: Path
) -> None:
    alone = [name for name in MAIN_JOB if name not in ("nvidia-config", "prometheus", "promtool")]
    files = [(name,) for name in alone] + [("prometheus", "promtool")]
    table = [asdict(release(tmp_path / "served", served, *names)) for names in files]
    (tmp_path / "table.json").write_text(json.dumps(table))
    checkout.command = lambda *args: [sys.executable, "-c", PROGRAM, str(tmp_path / "table.json"), *args]  # type: ignore[method-assign]
    done = checkout.gpuform("local", "up")
    before, _, after = done.stdout.partition("the cluster is ready; now the programs of its monitoring")
    assert "Pools" in before
    assert "alerts: http://127.0.0.1:" in after
    assert done.stderr.count("downloaded, ") == len(files)
    assert [line for line in done.stderr.splitlines() if "building" in line] == [
        f"nvidia-config {CATALOGUE['nvidia-config'].module.displayed_version}: building nvidia-config"
    ]
    official = {folder.name for folder in (checkout.paths.cache / "tools").glob("*-official-*")}
    assert (
        len(official) == len(alone) + 1
    )  # promtool, but not the plugin, which the engine looks for by version
