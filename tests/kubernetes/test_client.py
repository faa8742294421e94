"""The client's access, pauses and errors; every field of a kubeconfig is honoured or refused.

Fields: client-go, ``tools/clientcmd/api/v1/types.go``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpuform.checkout.errors import InputError
from gpuform.kubernetes import client as module
from gpuform.kubernetes.client import ApiError, Client, Unreachable
from gpuform.kubernetes.cluster import Reader
from gpuform.kubernetes.credentials import Tokens, as_file
from gpuform.kubernetes.fields import FIELDS
from gpuform.kubernetes.kinds import NODE, POD
from gpuform.kubernetes.kubeconfig import Access, load_access, resolve
from tests.fakes.client import kubeconfig

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
    message = "no usable credentials: the token is not one word of ASCII"
    with pytest.raises(Unreachable, match=message) as caught:
        asyncio.run(Client(Access(server="https://127.0.0.1:1", user={"token": token})).get("/api"))
    assert "c4nary" not in str(caught.value)


CONFIG = kubeconfig(
    {"server": "https://c:1/"}, {"client-certificate": "u.crt", "client-key": "u.key"}, namespace="n"
)
CONFIG["clusters"].append({"name": "d", "cluster": {"server": "https://d:2"}})
CONFIG["contexts"].append({"name": "two", "context": {"cluster": "d", "user": "u"}})


def test_a_kubeconfig_is_contents_a_path_or_the_environments(tmp_path: Any) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(CONFIG))
    contents = resolve({"kubeconfig": yaml.safe_dump(CONFIG)}, {})
    assert (contents.server, contents.namespace, contents.context) == ("https://c:1", "n", "x")
    path = resolve({"kubeconfig": str(file), "context": "two", "namespace": "m"}, {})
    assert (path.server, path.namespace) == ("https://d:2", "m")
    assert path.user["client-certificate"] == str(tmp_path / "u.crt")
    assert resolve({}, {"KUBECONFIG": f"{tmp_path}/none:{file}"}).server == "https://c:1"
    assert resolve({}, {"HOME": str(tmp_path)}).problem.startswith("no kubeconfig found")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"kubeconfig": CONFIG, "context": "three"}, "context 'three' is not in the kubeconfig"),
        ({"kubeconfig": "a: b: canary"}, "it is not valid YAML"),
        ({"kubeconfig": "/none/such"}, "No such file or directory"),
        ({"kubeconfig": "- a\n- b\n"}, "kubeconfig: it is not a kubeconfig"),
        ({"kubeconfig": {"clusters": ["canary"], "contexts": 5}}, "it is not a kubeconfig"),
        ({"kubeconfig": {"contexts": [{"name": "x", "context": []}, "y"]}}, "it is not a kubeconfig"),
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


V1 = "client.authentication.k8s.io/v1"
CLUSTER: dict[str, Any] = {"server": "http://cluster.example"}
LOGIN: dict[str, Any] = {"apiVersion": V1, "command": "aws", "interactiveMode": "Never"}
ALICE = {"as": "alice"}


def document(section: str = "user", **given: Any) -> dict[str, Any]:
    """A kubeconfig with these fields in one of its entries."""
    if section == "cluster":
        return kubeconfig({**CLUSTER, **given})
    return kubeconfig(CLUSTER, given) if section == "user" else kubeconfig(CLUSTER, {}, **given)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Requests that reach the transport; each is answered 200."""
    seen: list[httpx.Request] = []

    async def handle(_: Any, request: httpx.Request) -> httpx.Response:
        seen.append(request)
        text = b'{"gitVersion": "v1.34.4", "items": [], "metadata": {}}'
        return httpx.Response(200, content=text, request=request)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    return seen


def send_request(given: dict[str, Any]) -> None:
    async def once() -> None:
        client = Client(resolve({"kubeconfig": json.dumps(given)}, {}))
        try:
            await client.get("/version")
        finally:
            await client.close()

    asyncio.run(once())


EXTRA = {"as-user-extra": {"acme.com/scope": ["view", "dev"]}}
HONOURED: list[tuple[dict[str, Any], dict[str, list[str]]]] = [
    ({"token": "abc"}, {"Authorization": ["Bearer abc"]}),
    ({"token": "old", "tokenFile": "{file}"}, {"Authorization": ["Bearer from-file"]}),
    ({"username": "a", "password": "b"}, {"Authorization": ["Basic YTpi"]}),
    (ALICE, {"Impersonate-User": ["alice"]}),
    ({**ALICE, "as-uid": "7"}, {"Impersonate-Uid": ["7"]}),
    ({**ALICE, "as-groups": ["a", "b"]}, {"Impersonate-Group": ["a", "b"]}),
    ({**ALICE, **EXTRA}, {"Impersonate-Extra-acme.com%2Fscope": ["view", "dev"]}),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


@pytest.mark.parametrize("through", ["client", "reader"])
@pytest.mark.parametrize(("user", "headers"), HONOURED, ids=[", ".join(user) for user, _ in HONOURED])
def test_a_request_has_the_identity_of_the_user(
    user: dict[str, Any], headers: dict[str, list[str]], through: str, sent: list[httpx.Request], file: Path
) -> None:
    token = file.with_name("token")
    token.write_text("from-file\n")
    given = document(**{key: str(token) if value == "{file}" else value for key, value in user.items()})
    if through == "client":
        send_request(given)
    else:
        file.write_text(yaml.safe_dump(given))
        with Reader(file) as cluster:
            assert cluster.list_objects(NODE) == []
    assert sent
    for request in sent:
        assert {name: request.headers.get_list(name) for name in headers} == headers
        named = [name for name in request.headers if name.startswith("impersonate")]
        assert bool(named) is ("as" in user)


def test_a_list_takes_its_pages(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    queries = []

    async def handle(_: Any, request: httpx.Request) -> httpx.Response:
        page = int(request.url.params.get("continue", 0))
        queries.append((request.url.path, dict(request.url.params)))
        items = [{"metadata": {"name": f"{page}-{number}"}} for number in range(100)]
        more = {"continue": str(page + 1)} if page < 2 else {}
        return httpx.Response(200, json={"items": items, "metadata": more}, request=request)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    file.write_text(yaml.safe_dump(document(token="abc")))
    with Reader(file) as cluster:
        found = cluster.list_objects(POD, labelSelector="a=b")
    assert [pod["metadata"]["name"] for pod in found] == [f"{a}-{b}" for a in range(3) for b in range(100)]
    query = {"limit": "500", "labelSelector": "a=b"}
    paged = [query, query | {"continue": "1"}, query | {"continue": "2"}]
    assert queries == [("/api/v1/pods", item) for item in paged]


def test_the_fields_of_a_cluster_are_honoured(sent: list[httpx.Request]) -> None:
    send_request(document("cluster", **{"tls-server-name": "inside.example", "disable-compression": True}))
    assert sent[0].extensions["sni_hostname"] == "inside.example"
    assert sent[0].headers["Accept-Encoding"] == "identity"


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses of the proxies that requests use."""
    used: list[str] = []
    create = httpx.AsyncHTTPTransport.__init__

    def record(self: Any, *args: Any, **options: Any) -> None:
        if proxy := options.get("proxy"):
            used.append(str(proxy.url))
        create(self, *args, **options)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "__init__", record)
    return used


@pytest.mark.parametrize(
    ("server", "through"),
    [
        ("http://127.0.0.2:6443", False),
        ("http://localhost:6443", False),
        ("http://[::1]:6443", False),
        ("http://127.example.org", True),
        ("http://localhost.example.org", True),
    ],
)
def test_a_server_on_loopback_is_reached_without_the_proxy_of_the_environment(
    server: str, through: bool, sent: list[Any], proxies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    send_request(document("cluster", server=server))
    assert bool(proxies) is through


def test_the_proxy_of_a_cluster_is_used(proxies: list[str]) -> None:
    with pytest.raises(Unreachable):
        send_request(document("cluster", **{"proxy-url": "http://127.0.0.1:9"}))
    assert proxies == ["http://127.0.0.1:9"]


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """An exec plugin beside the kubeconfig that writes what it is told, and returns a token."""
    program = tmp_path / "bin" / "login"
    program.parent.mkdir()
    status = json.dumps({"status": {"token": "abc"}})
    program.write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/told\necho '{status}'\n")
    program.chmod(0o755)
    return program


def test_an_exec_plugin_is_found_beside_the_file_and_told_of_the_cluster(
    plugin: Path, sent: list[httpx.Request], file: Path
) -> None:
    login = {**LOGIN, "command": "./bin/login", "provideClusterInfo": True}
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {**CLUSTER, "extensions": [extension], "certificate-authority": "ca.crt"}
    file.with_name("ca.crt").write_text("ca")
    file.write_text(yaml.safe_dump(kubeconfig(cluster, {"exec": login})))
    assert asyncio.run(Tokens(load_access(file)).header()) == {"Authorization": "Bearer abc"}
    told = json.loads(file.with_name("told").read_text())
    assert (told["apiVersion"], told["spec"]["interactive"]) == (V1, False)
    assert told["spec"]["cluster"] == {
        "server": CLUSTER["server"],
        "certificate-authority-data": base64.b64encode(b"ca").decode(),
        "config": {"audience": "a"},
    }


def test_a_plugin_that_is_not_installed_gives_its_hint(sent: list[httpx.Request]) -> None:
    login = {**LOGIN, "command": "no-such-login", "installHint": "brew install it"}
    with pytest.raises(Unreachable, match="no-such-login is not installed: brew install it"):
        send_request(document(exec=login))
    assert sent == []


INSECURE = {"insecure-skip-tls-verify": True}
NO_USER = "is given without the user to impersonate"
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "users[u]": [
        ({"auth-provider": {"name": "oidc"}}, ".auth-provider: is not supported; use an exec plugin"),
        ({"as-uid": "7"}, f".as-uid: {NO_USER}; add as: USER"),
        ({"as-groups": ["a"]}, f".as-groups: {NO_USER}; add as"),
        ({"as-user-extra": {"a": ["b"]}}, f".as-user-extra: {NO_USER}"),
        ({**ALICE, "as-groups": [7]}, ".as-groups: is not a list of texts; write numbers in quotes"),
        ({**ALICE, "as-user-extra": {"a": "b"}}, ".as-user-extra.a: is not a list of texts"),
        ({"as": 7}, ".as: is not text; correct its value"),
        ({"as-scopes": ["a"]}, ".as-scopes: unknown field of a user"),
        ({"token": "a", "username": "b"}, ".username: is given beside token; leave one of them out"),
        ({"client-certificate-data": "YQ=="}, ": client-key is missing; give both"),
        ({"client-key": "a"}, ": client-certificate is missing; give both"),
        ({"client-key": "a", "client-key-data": "b"}, ".client-key-data: is given beside client-key"),
        ({"exec": {**LOGIN, "command": ""}}, ".exec.command: is missing; name the command"),
        ({"exec": {**LOGIN, "apiVersion": None}}, ".exec.apiVersion: is missing; use client.auth"),
        ({"exec": {**LOGIN, "apiVersion": f"{V1}alpha1"}}, f".exec.apiVersion: is {V1}alpha1; use {V1} or"),
        ({"exec": {**LOGIN, "interactiveMode": "Always"}}, ".exec.interactiveMode: is Always, and the"),
        ({"exec": {**LOGIN, "args": [1]}}, ".exec.args: is not a list of texts"),
        ({"exec": {**LOGIN, "env": [{"value": "a"}]}}, ".exec.env: has an entry without a name"),
        ({"exec": {**LOGIN, "policy": {}}}, ".exec.policy: unknown field of a exec"),
    ],
    "clusters[c]": [
        ({"proxy-url": "socks5://a:1"}, ".proxy-url: only HTTP proxies are supported; use"),
        ({"proxy-url": "a:1"}, ".proxy-url: only HTTP proxies are supported; use a proxy"),
        (
            {"proxy-url": "http://a:1", "tls-server-name": "b"},
            ".tls-server-name: the server's name cannot be",
        ),
        ({**INSECURE, "certificate-authority": "a"}, ".certificate-authority: is not checked with insecure-"),
        ({"insecure-skip-tls-verify": "false"}, ".insecure-skip-tls-verify: is not true or"),
        ({"pinned-key": "a"}, ".pinned-key: unknown field of a cluster, and it may change"),
    ],
    "contexts[x]": [({"impersonate": "a"}, ".impersonate: unknown field of a context, and it may")],
}


@pytest.mark.parametrize(
    ("where", "given", "text"),
    [(where, given, f"{where}{text}") for where, rows in REFUSED.items() for given, text in rows],
)
def test_what_cannot_be_honoured_is_refused_before_any_request(
    where: str, given: dict[str, Any], text: str, sent: list[httpx.Request], file: Path
) -> None:
    section = where.partition("s[")[0]
    with pytest.raises(Unreachable, match=re.escape(text)):
        send_request(document(section, **given))
    file.write_text(yaml.safe_dump(document(section, **given)))
    with pytest.raises(InputError, match=re.escape(text)):
        Reader(file)
    assert sent == []


def test_a_user_that_is_missing_is_not_anonymous() -> None:
    given = {**document(), "users": []}
    assert resolve({"kubeconfig": json.dumps(given)}, {}).problem == (
        "context 'x' has user 'u', which is not in the kubeconfig"
    )


def test_every_field_of_client_go_is_known() -> None:
    assert {section: {*fields} for section, fields in FIELDS.items()} == TYPES


TYPES = {
    "cluster": {
        *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority"),
        *("certificate-authority-data", "proxy-url", "disable-compression", "extensions"),
    },
    "user": {
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data", "token"),
        *("tokenFile", "as", "as-uid", "as-groups", "as-user-extra", "username", "password"),
        *("auth-provider", "exec", "extensions"),
    },
    "context": {"cluster", "user", "namespace", "extensions"},
    "exec": {
        *("command", "args", "env", "apiVersion", "installHint", "provideClusterInfo", "interactiveMode")
    },
}
"""Cluster, AuthInfo, Context and ExecConfig of client-go v0.36."""
