"""Official plugins, from a server on loopback that is Pulumi's and GitHub's."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gpuform.engine.standins import downloaded
from lab.toolchain import Toolchain, plugin

pytestmark = pytest.mark.tools
NAME = "pulumi-resource-tiny"
BINARY = b"#!/bin/sh\necho official\n"


def archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        entry = tarfile.TarInfo(NAME)
        entry.size, entry.mode = len(BINARY), 0o755
        packed.addfile(entry, io.BytesIO(BINARY))
    return out.getvalue()


ARCHIVE = archive()


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    file = f"{NAME}-v1.2.3-{plugin.this_platform().replace('/', '-')}.tar.gz"

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(403)
            self.end_headers()

        def do_GET(self) -> None:
            asked.append(self.path)
            digest = {
                "real": f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}",
                "forged": f"sha256:{'0' * 64}",
            }
            _, first, *_ = self.path.split("/")
            release = {
                "assets": [
                    {"name": "other", "digest": None},
                    {"name": file, "digest": digest.get(first)},
                    {"name": file.replace("1.2.3", "1.2.4"), "digest": digest.get(first)},
                ]
            }
            content = json.dumps(release).encode() if first in (*digest, "none") else b""
            content = ARCHIVE if self.path == f"/{file}" else content
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()
        thread.join()


@pytest.fixture
def chain(fake_go: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A toolchain with a plugin of this version."""

    def made(url: str, version: str, releases: str = "real") -> Toolchain:
        tool = replace(fake_go.tool(NAME), place=".", ask=None, plugin=version)
        found: Toolchain = fake_go.toolchain(tool)
        download = plugin.download
        monkeypatch.setattr(
            "lab.toolchain.chain.download",
            lambda *given: download(*given, server=url, releases=f"{url}/{releases}"),
        )
        return found

    return made


def test_an_official_plugin_is_downloaded_once_and_nothing_is_built(
    chain: Any, server: tuple[str, list[str]], fake_go: Any
) -> None:
    url, asked = server
    for _ in range(2):
        found = chain(url, "1.2.3")
        assert found.path(NAME) == downloaded(fake_go.paths.cache, NAME, "1.2.3")
        assert (found.locate(NAME).source, found.locate(NAME).version) == ("plugin", "1.2.3")
    assert found.path(NAME).read_bytes() == BINARY
    file = f"/{NAME}-v1.2.3-{plugin.this_platform().replace('/', '-')}.tar.gz"
    assert asked == ["/real/pulumi-tiny/releases/tags/v1.2.3", file]
    assert fake_go.builds() == []


@pytest.mark.parametrize(
    ("version", "releases", "reason"),
    [
        ("1.2.3", "forged", "has SHA-256 "),
        ("1.2.4", "real", "cannot be downloaded: HTTP 404 for "),
        ("1.2.3", "none", "cannot be verified: GitHub: states no SHA-256 of pulumi-resource-tiny-v1.2.3-"),
        ("1.2.3", "missing", "cannot be verified: GitHub: "),
        ("9.9.9", "real", "cannot be verified: GitHub: states no SHA-256 of pulumi-resource-tiny-v9.9.9-"),
        ("", "", "cannot be reached"),
    ],
)
def test_a_plugin_that_cannot_be_downloaded_and_verified_is_built(
    chain: Any, server: tuple[str, list[str]], fake_go: Any, version: str, releases: str, reason: str
) -> None:
    said: list[str] = []
    found = chain(server[0], version, releases) if version else chain("http://127.0.0.1:1", "1.2.3")
    found.ensure(NAME, progress=said.append)
    assert found.locate(NAME).source == "built"
    assert any(reason in line for line in said), said
    assert len(fake_go.builds()) == 1
