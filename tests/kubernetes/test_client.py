"""The client's access, its pauses between attempts, and its errors."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpuform.kubernetes import client as module
from gpuform.kubernetes.client import ApiError, Client, Unreachable
from gpuform.kubernetes.credentials import as_file
from gpuform.kubernetes.kubeconfig import Access, resolve

pytestmark = pytest.mark.unit


def client_with(answers: Iterator[httpx.Response]) -> Client:
    client = Client(Access(server="https://127.0.0.1:1"))
    client._http = httpx.AsyncClient(
        base_url="https://127.0.0.1:1", transport=httpx.MockTransport(lambda _: next(answers))
    )
    return client


@pytest.mark.parametrize(
    ("header", "pauses"),
    [
        ("2", [2.0, 2.0, 2.0]),
        ("0", [0.0, 0.0, 0.0]),
        (None, [0.2, 0.8, 3.2]),
        ("Wed, 21 Oct 2026 07:28:00 GMT", [0.2, 0.8, 3.2]),
        ("1.5", [0.2, 0.8, 3.2]),
        ("-1", [0.2, 0.8, 3.2]),
        ("nan", [0.2, 0.8, 3.2]),
        ("99999999999", [10.0, 10.0, 10.0]),
    ],
)
def test_a_busy_server_is_asked_again_after_a_bounded_pause(
    header: str | None, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    headers = {} if header is None else {"Retry-After": header}
    client = client_with(iter([httpx.Response(429, headers=headers)] * 4))
    with pytest.raises(ApiError):
        asyncio.run(client.get("/api"))
    assert slept == pytest.approx(pauses)


@pytest.mark.parametrize("token", ["c4nary\n4711", "c4nary 4711", "c4naryé"])
def test_a_token_that_no_header_can_hold_is_in_no_message(token: str) -> None:
    with pytest.raises(
        Unreachable, match="no usable credentials: the token is not one word of ASCII"
    ) as caught:
        asyncio.run(Client(Access(server="https://127.0.0.1:1", user={"token": token})).get("/api"))
    assert "c4nary" not in str(caught.value)


CONFIG = {
    "current-context": "one",
    "clusters": [
        {"name": "c", "cluster": {"server": "https://c:1/"}},
        {"name": "d", "cluster": {"server": "https://d:2"}},
    ],
    "users": [{"name": "u", "user": {"client-certificate": "u.crt", "client-key": "u.key"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "n"}},
        {"name": "two", "context": {"cluster": "d", "user": "u"}},
    ],
}


def test_a_kubeconfig_is_contents_a_path_or_the_environments(tmp_path: Any) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONFIG))
    contents = resolve({"kubeconfig": yaml.safe_dump(CONFIG)}, {})
    assert (contents.server, contents.namespace, contents.context) == ("https://c:1", "n", "one")
    path = resolve({"kubeconfig": str(file), "context": "two", "namespace": "m"}, {})
    assert (path.server, path.namespace) == ("https://d:2", "m")
    assert path.user["client-certificate"] == str(tmp_path / "u.crt")
    assert resolve({}, {"KUBECONFIG": f"{tmp_path}/none:{file}"}).server == "https://c:1"
    assert resolve({}, {"HOME": str(tmp_path)}).problem.startswith("no kubeconfig found")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"kubeconfig": yaml.safe_dump(CONFIG), "context": "three"},
            "context 'three' is not in the kubeconfig",
        ),
        ({"kubeconfig": "a: b: canary"}, "it is not valid YAML"),
        ({"kubeconfig": "/none/such"}, "No such file or directory"),
        ({"kubeconfig": "- a\n- b\n"}, "kubeconfig: it is not a kubeconfig"),
        ({"kubeconfig": {"clusters": ["canary"], "contexts": 5}}, "it is not a kubeconfig"),
        (
            {"kubeconfig": {"current-context": "x", "contexts": [{"name": "x", "context": []}, "y"]}},
            "it is not",
        ),
        ({"kubeconfig": "contexts:\n- {}\n"}, "it is not a kubeconfig"),
        ({"kubeconfig": "a: \n  " + "[" * 3000}, "it is not a kubeconfig"),
    ],
)
def test_a_broken_kubeconfig_is_a_reason_not_a_crash(config: Any, problem: str) -> None:
    found = resolve(config, {})
    assert problem in found.problem
    assert "canary" not in found.problem


def test_a_client_key_gets_on_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/none/such")
    with as_file(b"key") as name:
        assert [Path(name).read_bytes() for _ in range(2)] == [b"key", b"key"]  # ssl opens it twice
    assert not Path(name).exists()
