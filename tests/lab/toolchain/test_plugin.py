"""Official plugins, from played answers of Pulumi's server and GitHub."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gpuform.engine.standins import downloaded_path
from lab.toolchain import Toolchain, plugin
from tests.lab.toolchain.conftest import get

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
FILE = f"{NAME}-v1.2.3-{plugin.this_platform().replace('/', '-')}.tar.gz"


class Internet:
    """Both servers: the digests that GitHub states (None: no release), and the addresses that were asked."""

    def __init__(self) -> None:
        self.digest: str | None = f"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}"
        self.up = True
        self.asked: list[str] = []

    def answer(self, _: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        if not self.up:
            raise httpx.ConnectError("refused")
        if request.method == "HEAD":
            return httpx.Response(403, request=request)
        self.asked.append(str(request.url))
        if str(request.url) == f"{plugin.SERVER}/{FILE}":
            return httpx.Response(200, request=request, content=ARCHIVE)
        if not str(request.url).startswith(plugin.RELEASES) or self.digest is None:
            return httpx.Response(404, request=request)
        names = (FILE, FILE.replace("1.2.3", "1.2.4"))
        digests = {"other": None, **dict.fromkeys(names, self.digest)}
        assets = [{"name": name, "digest": digest} for name, digest in digests.items()]
        return httpx.Response(200, request=request, json={"assets": assets})


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    played = Internet()
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda *given: played.answer(*given))
    return played


def chain(fake_go: Any, version: str = "1.2.3") -> Toolchain:
    result: Toolchain = fake_go.toolchain(
        replace(fake_go.tool(NAME), package_path=".", version_arguments=None, plugin=version)
    )
    return result


def test_an_official_plugin_is_downloaded_once_and_nothing_is_built(internet: Internet, fake_go: Any) -> None:
    for _ in range(2):
        result = chain(fake_go)
        assert result.path(NAME) == downloaded_path(fake_go.paths.cache, NAME, "1.2.3")
        assert (result.locate(NAME).source, result.locate(NAME).version) == ("official", "1.2.3")
    assert result.path(NAME).read_bytes() == BINARY
    release = f"{plugin.RELEASES}/pulumi-tiny/releases/tags/v1.2.3"
    assert internet.asked == [release, f"{plugin.SERVER}/{FILE}"]
    assert fake_go.builds() == []


@pytest.mark.parametrize(
    ("version", "played", "reason"),
    [
        ("1.2.4", {}, "cannot be downloaded: HTTP 404 for "),
        ("1.2.3", {"digest": ""}, f"cannot be verified: GitHub: states no SHA-256 of {FILE}"),
        ("1.2.3", {"digest": None}, "cannot be verified: GitHub: HTTP 404 for the release 1.2.3"),
        ("9.9.9", {}, f"cannot be verified: GitHub: states no SHA-256 of {NAME}-v9.9.9-"),
        ("1.2.3", {"up": False}, "no official binaries from api.github.com, get.pulumi.com: refused"),
    ],
)
def test_a_plugin_that_cannot_be_downloaded_and_verified_is_built(
    internet: Internet, fake_go: Any, version: str, played: dict[str, Any], reason: str
) -> None:
    vars(internet).update(played)
    result = chain(fake_go, version)
    messages = get(result, NAME)
    assert result.locate(NAME).source == "built"
    assert any(reason in line for line in messages), messages
    assert len(fake_go.builds()) == 1
