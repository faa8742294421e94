"""Official releases, from a server on loopback: what is pinned is kept, what is not pinned is refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuform.errors import Failure
from gpuform.toolchain import release as release_module
from gpuform.toolchain.catalogue import CATALOGUE, Release

pytestmark = pytest.mark.tools
BINARY = b"#!/bin/sh\necho tiny version v1.2.3, released\n"


@dataclass
class Server:
    """Serves ``files``; notes every request; answers HEAD after ``delay`` seconds."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    delay: float = 0.0

    def release(
        self, path: str, content: bytes, sha256: str | None = None, member: str | None = None
    ) -> Release:
        self.files[path] = content
        digest = hashlib.sha256(content).hexdigest()
        return Release(url=f"{self.url}{path}", sha256=sha256 or digest, member=member)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> bytes | None:
            state.requests.append(f"{self.command} {self.path}")
            content = state.files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.end_headers()
            return content

        def do_HEAD(self) -> None:
            time.sleep(state.delay)
            self._answer()

        def do_GET(self) -> None:
            self.wfile.write(self._answer() or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield state
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_a_bare_binary_is_kept_and_nothing_is_built(fake_go, server: Server) -> None:
    release = server.release("/tiny", BINARY)
    toolchain = fake_go.toolchain(fake_go.tool(release=release))
    lines: list[str] = []
    toolchain.ensure("tiny", progress=lines.append)
    found = toolchain.locate("tiny")
    assert (found.source, found.version) == ("release", "1.2.3")
    assert found.path
    assert found.path.read_bytes() == BINARY
    assert found.path.parent.name == f"tiny-1.2.3-{release.sha256[:12]}"
    assert fake_go.builds() == []
    assert lines == ["tiny 1.2.3: official release, SHA-256 checked"]


def test_a_binary_inside_an_archive(fake_go, server: Server) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("tiny-v1.2.3/tiny")
        entry.size = len(BINARY)
        archive.addfile(entry, io.BytesIO(BINARY))
    release = server.release("/tiny.tar.gz", packed.getvalue(), member="tiny-v1.2.3/tiny")
    path = fake_go.toolchain(fake_go.tool(release=release)).path("tiny")
    assert path.read_bytes() == BINARY


def test_a_wrong_checksum_is_an_error_and_nothing_is_kept(fake_go, server: Server) -> None:
    release = server.release("/tiny", BINARY, sha256="0" * 64)
    with pytest.raises(Failure) as error:
        fake_go.toolchain(fake_go.tool(release=release)).ensure("tiny", progress=lambda _: None)
    actual = hashlib.sha256(BINARY).hexdigest()
    assert str(error.value) == (
        f"tiny: {release.url} has SHA-256 {actual}, pinned is {'0' * 64}; "
        "do not use that file; find out which of the two is wrong before the pin is changed"
    )
    assert fake_go.published() == []
    assert fake_go.builds() == []


def test_one_probe_for_all_and_then_the_build(fake_go, server: Server) -> None:
    tools = [fake_go.tool(name, server.release(f"/{name}", BINARY)) for name in ("tiny", "other")]
    server.files.clear()
    lines: list[str] = []
    toolchain = fake_go.toolchain(*tools)
    toolchain.ensure("tiny", "other", progress=lines.append)
    assert server.requests == ["HEAD /tiny"]
    assert [toolchain.locate(name).source for name in ("tiny", "other")] == ["built", "built"]
    assert lines[0].startswith("releases cannot be reached (")
    assert lines[0].endswith("); building from Go modules")


def test_a_server_that_does_not_answer_is_given_up(
    fake_go, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "PROBE_SECONDS", 0.2)
    server.delay = 1.0
    toolchain = fake_go.toolchain(fake_go.tool(release=server.release("/tiny", BINARY)))
    toolchain.ensure("tiny", progress=lambda _: None)
    assert toolchain.locate("tiny").source == "built"


def test_a_release_of_another_version_is_refused(fake_go, server: Server) -> None:
    release = server.release("/tiny", b"#!/bin/sh\necho tiny version v9.9.9\n")
    with pytest.raises(Failure, match=r"tiny: the binary says version 9\.9\.9, wanted is 1\.2\.3; "):
        fake_go.toolchain(fake_go.tool(release=release)).ensure("tiny", progress=lambda _: None)
    assert fake_go.published() == []


def test_every_pinned_checksum_is_one() -> None:
    """None is pinned yet; whoever pins one pins a whole SHA-256 of a file of that version, over https."""
    for tool in CATALOGUE.values():
        for release in tool.releases.values():
            assert len(bytes.fromhex(release.sha256)) == 32
            assert release.url.startswith("https://")
            assert tool.module.version in release.url
