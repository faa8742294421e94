"""Official binaries, from a loopback server with archives of the test and a table of its own."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import re
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import Failure, InputError
from lab.toolchain import Toolchain, releases
from lab.toolchain.catalogue import CATALOGUE, GATE
from lab.toolchain.releases import Hosts, Release
from lab.toolchain.tool import Tool, this_platform
from tests.external import reference
from tests.fakes.http_server import serving
from tests.lab.toolchain.conftest import get

pytestmark = pytest.mark.tools
TABLE = yaml.safe_load(Path(releases.__file__).with_name("releases.yaml").read_text())
BUILT_ALWAYS = {  # no official binary, or no digest with a source
    *("nvidia-config", "nvidia-ctk", "nvidia-mig-parted", "nvml-mock", "pulumi-openstack-offline"),
    *("karpenter", "kueue", "actionlint"),
}
UNLISTED = {"gpu-operator", "nfd-master", "nfd-gc"}
"""Their checksums are not in the reference lists; the rows name the sources."""


def script(name: str, version: str = "1.2.3") -> bytes:
    return f"#!/bin/sh\necho {name} version v{version}\n".encode()


def archive(top: str = "release", **files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for name, content in {"README": b"text", **files}.items():
            entry = tarfile.TarInfo(f"{top}/{name}" if name != "README" else name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Server:
    """Answers by path; a path with None is never answered, one with a number gets that status.

    A text is the path to which it redirects, as GitHub (docs.github.com, REST API, release assets) and
    registry.k8s.io do with their files.
    """

    base: str = ""
    files: dict[str, bytes | int | str | None] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    token: str = ""
    """What a registry gives to everyone, and then asks for."""

    def release(self, path: str, content: bytes, *tools: str, version: str = "1.2.3") -> Release:
        self.files[path] = content
        return Release(tools, version, f"{self.base}{path}", sha256(content))

    def image(self, name: str, program: bytes, *layers: bytes, history: Sequence[str] = ()) -> Release:
        """The image's index, with a manifest of another platform first, config and layers as blobs."""
        layers = layers or (archive(**{name: program}), archive(last=b"layer"))
        steps = [{"created_by": "ENV a=b", "empty_layer": True}, *({"created_by": step} for step in history)]
        document = {"config": {"Entrypoint": [f"/release/{name}"]}, "history": steps if history else []}
        config = json.dumps(document).encode()
        digests = [{"digest": self._blob(content)} for content in (config, *layers)]
        manifest = json.dumps({"config": digests[0], "layers": digests[1:]}).encode()
        os_name, architecture = this_platform().split("/")
        children = [
            {"digest": "sha256:" + "0" * 64, "platform": {"os": "plan9", "architecture": architecture}},
            {"digest": self._blob(manifest, "manifests"),
             "platform": {"os": os_name, "architecture": architecture}},
        ]  # fmt: skip
        index = json.dumps({"manifests": children}).encode()
        return self.release(f"/v2/tiny/manifests/sha256:{sha256(index)}", index, name)

    def _blob(self, content: bytes, kind: str = "blobs") -> str:
        digest = f"sha256:{sha256(content)}"
        self.files[f"/v2/tiny/{kind}/{digest}"] = content
        return digest


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    played = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(401 if played.token else 404)
            realm = f'Bearer realm="{played.base}/token",service="tiny",scope="repository:tiny:pull"'
            self.send_header("WWW-Authenticate", realm)
            self.end_headers()

        def do_GET(self) -> None:
            played.asked.append(self.path)
            content = played.files.get(self.path, 404)
            if played.token and self.path.startswith("/token?"):
                content = json.dumps({"token": played.token}).encode()
            elif played.token and self.path.startswith("/v2/"):
                known = self.headers.get("Authorization") == f"Bearer {played.token}"
                content = content if known else 401
            if content is None:
                threading.Event().wait(5)
            elif isinstance(content, str):
                self.send_response(307)
                self.send_header("Location", content)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif isinstance(content, int):
                self.send_error(content)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler) as at:
        played.base = f"http://{at}"
        yield played


Chain = Callable[..., Toolchain]


@pytest.fixture
def chain(fake_go: Any) -> Chain:
    def make(*table: Release, hosts: Hosts | None = None) -> Toolchain:
        tools: tuple[Tool, ...] = (fake_go.tool("tiny"), fake_go.tool("other"))
        catalogue = {tool.name: tool for tool in tools}
        return Toolchain(fake_go.paths, catalogue, table, hosts or Hosts(""))

    return make


def test_every_tool_of_the_main_job_has_a_release_or_a_reason() -> None:
    released = {(name, row["version"]) for row in TABLE for name in row["tools"]}
    for name in GATE:
        tool = CATALOGUE[name]
        assert ((name, tool.plugin or tool.module.displayed_version) in released) == (
            name not in BUILT_ALWAYS
        )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["tools"][0])
def test_each_release_has_a_source_and_both_platforms(row: dict[str, Any]) -> None:
    assert row["source"]
    assert sorted(row["files"]) == ["linux/amd64", "linux/arm64"]
    for entry in row["files"].values():
        assert entry["address"].startswith("https://")
        assert re.fullmatch("[0-9a-f]{64}", entry["sha256"])


def test_checksums_are_those_of_the_sources() -> None:
    """The reference lists, which name where each checksum was read."""
    texts = [reference(file).read_text() for file in ("releases.csv", "releases-more.csv")]
    rows = [row for text in texts for row in csv.DictReader(text.splitlines())]
    stated = {row["checksum"]: row["url"] for row in rows}
    for row in TABLE:
        if {*row["tools"]} <= UNLISTED:
            continue
        for entry in row["files"].values():
            address = stated[entry["sha256"]]
            assert entry["address"] == address or address.split(":")[0] in entry["address"].replace("/v2", "")


def test_files_of_each_kind_are_downloaded_once_and_nothing_is_built(server: Server, chain: Chain) -> None:
    both = archive(tiny=script("tiny"), other=script("other"))
    plain = server.release("/plain", script("tiny"), "tiny")
    server.files |= {"/plain": "/blob", "/blob": script("tiny")}
    for table in (
        [plain, server.image("other", script("other"))],
        [server.release("/both.tar.gz", both, "tiny", "other")],
    ):
        assert sorted(get(chain(*table), "tiny", "other")) == sorted(
            f"{item.title}: downloaded, 0 MB" for item in table
        )
        again = chain(*table)
        asked = len(server.asked)
        for name in ("tiny", "other"):
            assert again.locate(name).source == "official"
            assert again.path(name).read_bytes() == script(name)
        assert len(server.asked) == asked


def test_an_image_of_a_registry_with_tokens_brings_programs_a_folder_and_a_chart(
    server: Server, chain: Chain
) -> None:
    """As NVIDIA's: programs and files are in layers of their own, which the history names."""
    server.token = "for everyone"
    old, new = archive(**{"opt/a.yaml": b"old", "opt/b.yaml": b"b"}), archive(**{"opt/a.yaml": b"new"})
    programs = archive(**{"usr/tiny": script("tiny"), "usr/other": script("other")})
    older = archive(**{"usr/tiny": b"replaced by a later layer"})
    layers = (archive(libraries=b"cuda"), older, programs, old, new)
    steps = ("COPY /cuda /", "COPY tiny /usr", "COPY tiny /usr", "COPY a /release/opt", "COPY b /release/opt")
    image = server.image("tiny", b"", *layers, history=steps)
    packed = archive("tiny", **{"Chart.yaml": b"name: tiny", "templates/x.yaml": b"kind: X"})
    chart = server.release("/charts/tiny.tgz", packed, "tiny")
    table = replace(
        image,
        tools=("tiny", "other"),
        programs=(("tiny", "release/usr/tiny"), ("other", "release/usr/other")),
        folder="release/opt",
        chart=(chart.address, chart.sha256),
    )
    toolchain = chain(table)
    get(toolchain, "tiny", "other")
    folder = toolchain.path("tiny").parent
    assert toolchain.path("other").read_bytes() == script("other")
    assert (folder / "release" / "opt" / "a.yaml").read_bytes() == b"new", "the later layer wins"
    assert (folder / "release" / "opt" / "b.yaml").read_bytes() == b"b"
    assert (folder / "chart" / "templates" / "x.yaml").read_bytes() == b"kind: X"
    assert sum(path.startswith("/token?service=tiny&scope=repository") for path in server.asked) == 1
    assert f"/v2/tiny/blobs/sha256:{sha256(layers[0])}" not in server.asked


def test_an_image_for_another_machine_is_not_taken(server: Server, chain: Chain) -> None:
    """A digest may be that of one platform's manifest."""
    config = json.dumps({"architecture": "s390x", "config": {"Entrypoint": ["/release/tiny"]}}).encode()
    layer = server._blob(archive(tiny=script("tiny")))
    manifest = {"config": {"digest": server._blob(config)}, "layers": [{"digest": layer}]}
    content = json.dumps(manifest).encode()
    toolchain = chain(server.release(f"/v2/tiny/manifests/sha256:{sha256(content)}", content, "tiny"))
    assert get(toolchain)[0] == "tiny 1.2.3: cannot be downloaded: its image is for s390x"
    assert toolchain.locate("tiny").source == "built"


def test_a_tool_without_a_release_is_built_beside_the_downloads(
    server: Server, chain: Chain, fake_go: Any
) -> None:
    toolchain = chain(server.release("/tiny", script("tiny"), "tiny"))
    get(toolchain, "tiny", "other")
    assert (toolchain.locate("tiny").source, toolchain.locate("other").source) == ("official", "built")
    assert len(fake_go.builds()) == 1


@pytest.mark.parametrize("content", [script("tiny", "6.6.6"), script("tiny")[:-5], b""])
def test_another_checksum_stops_with_both_values_and_the_next_run_continues(
    server: Server, chain: Chain, fake_go: Any, content: bytes
) -> None:
    table = (server.release("/tiny", script("tiny"), "tiny"), server.release("/o", script("other"), "other"))
    server.files["/tiny"] = content
    with pytest.raises(Failure) as error:
        get(chain(*table), "tiny", "other")
    assert error.value.subject == f"{server.base}/tiny"
    facts = f"has SHA-256 {sha256(content)} ({len(content)} bytes), and the release {table[0].sha256}"
    assert error.value.fact == facts
    assert [name.split("-")[0] for name in fake_go.published()] == ["other"]
    assert fake_go.builds() == []
    server.files["/tiny"], server.asked[:] = script("tiny"), []
    assert chain(*table).path("tiny").read_bytes() == script("tiny")
    assert server.asked == ["/tiny"]


def test_a_release_of_another_version_than_its_row_is_not_kept(
    server: Server, chain: Chain, fake_go: Any
) -> None:
    table = server.release("/tiny", script("tiny", "1.2.4"), "tiny")
    with pytest.raises(Failure, match=r"tiny: the binary reports version 1\.2\.4, not 1\.2\.3"):
        get(chain(table))
    assert fake_go.published() == []


def test_an_archive_without_the_tool_says_so(server: Server, chain: Chain) -> None:
    with pytest.raises(Failure, match=r"tiny 1\.2\.3: its archive has no tiny; "):
        get(chain(server.release("/tiny", archive(other=b""), "tiny")))


WITHOUT = [(404, "HTTP 404 for "), (503, "HTTP 503 for "), (None, "timed out")]


@pytest.mark.parametrize(("answer", "reason"), WITHOUT)
def test_a_file_that_cannot_be_had_is_built_with_the_reason(
    server: Server, chain: Chain, monkeypatch: pytest.MonkeyPatch, answer: int | None, reason: str
) -> None:
    monkeypatch.setattr(releases, "_READ_S", 0.3)
    table = server.release("/tiny", script("tiny"), "tiny")
    server.files["/tiny"] = answer
    toolchain = chain(table)
    line, *_ = get(toolchain)
    assert (line.startswith("tiny 1.2.3: cannot be downloaded: "), reason in line) == (True, True), line
    assert toolchain.locate("tiny").source == "built"


def test_a_host_that_hangs_is_asked_once_in_a_run(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(releases, "PROBE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.listen()
        base = f"http://127.0.0.1:{silent.getsockname()[1]}"
        table = [Release((name,), "1.2.3", f"{base}/{name}", "0" * 64) for name in ("tiny", "other")]
        hosts = Hosts("")
        lines = [line for name in ("tiny", "other") for line in get(chain(*table, hosts=hosts), name)]
        silent.settimeout(0.1)
        silent.accept()
        with pytest.raises(TimeoutError):
            silent.accept()
    assert lines[0] in (
        "no official binaries from 127.0.0.1: timed out",
        "no official binaries from 127.0.0.1: no answer within 0 s",
    )
    assert [line for line in lines[1:] if "building" not in line and "built" not in line] == []


def test_a_proxy_that_refuses_is_named(server: Server, chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.base)
    address = "http://releases.example/tiny"
    server.files[address] = 403
    lines = get(chain(Release(("tiny",), "1.2.3", address, "0" * 64)))
    assert server.asked == [address]
    assert lines[0] == f"tiny 1.2.3: cannot be downloaded: HTTP 403 for {address}"


def test_a_mirror_has_the_same_paths_and_is_asked_alone(server: Server, chain: Chain) -> None:
    mirrored = server.release("/mirror/a/tiny", script("tiny"), "tiny")
    table = replace(mirrored, address="https://releases.example/a/tiny")
    assert chain(table, hosts=Hosts(f"{server.base}/mirror/")).path("tiny").read_bytes() == script("tiny")


def test_a_mirror_without_a_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_MIRROR", "mirror.example")
    with pytest.raises(InputError, match=r"GPUFORM_MIRROR: 'mirror\.example' is no http or https address"):
        Hosts()


@pytest.mark.parametrize("step", ["_copy", "_unpack"])
def test_a_full_disk_is_named_and_leaves_nothing(
    server: Server, chain: Chain, fake_go: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/file")

    place = releases.Downloads if step == "_copy" else releases
    table = server.release("/tiny", script("tiny"), "tiny")
    with monkeypatch.context() as patched:
        patched.setattr(place, step, full)
        with pytest.raises(InputError) as error:
            get(chain(table))
    assert str(error.value).startswith("/cache/file: cannot be written (No space left on device); free space")
    assert fake_go.published() == []
    assert list((fake_go.tools / ".build").iterdir()) == []
    assert chain(table).locate("tiny").path is None
    assert chain(table).path("tiny").is_file()


def test_ctrl_c_ends_the_downloads(
    server: Server, chain: Chain, fake_go: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "_READ_S", 1.0)

    class Interrupted:
        def line(self, text: str) -> None:
            raise AssertionError(text)

        def update(self, text: str) -> None:
            assert text == "official binaries: 0 of 1 downloaded, 0 of 0 MB"
            raise KeyboardInterrupt

    table = server.release("/tiny", script("tiny"), "tiny")
    server.files["/tiny"] = None
    with pytest.raises(KeyboardInterrupt):
        chain(table).ensure("tiny", progress=Interrupted())
    assert fake_go.published() == []
    assert list((fake_go.tools / ".build").iterdir()) == []
