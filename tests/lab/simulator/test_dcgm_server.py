"""The metrics server: its answers over real connections on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lab.simulator.dcgm import server

pytestmark = pytest.mark.unit


def scrape(name: str) -> tuple[int, str]:
    if name == "broken":
        raise ZeroDivisionError
    return (200, "a 1\n") if name == "node-0" else (503, f"{name}: down\n")


def talk(*requests: str, until_closed: bool = True) -> str:
    """The server's answers on one connection; the last request must close it."""

    async def run() -> str:
        serving = await server.serve(scrape, 0)
        port = serving.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in requests:
            writer.write(request.encode())
        await writer.drain()
        said = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        serving.close()
        return said.decode()

    return asyncio.run(run())


def get(path: str, more: str = "Connection: close\r\n") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n"


ANSWERS = {
    "/healthz": (200, "ok\n"),
    "/nodes/node-0/metrics": (200, "a 1\n"),
    "/nodes/node%2D0/metrics?x=1": (200, "a 1\n"),
    "/nodes/node-1/metrics": (503, "node-1: down\n"),
    "/nodes//metrics": (404, "the paths are /nodes/NODE/metrics and /healthz\n"),
    "/metrics": (404, "the paths are /nodes/NODE/metrics and /healthz\n"),
    "/nodes/broken/metrics": (500, "broken: see the simulator's log\n"),
}


@pytest.mark.parametrize("path", ANSWERS)
def test_each_path_has_its_answer(path: str) -> None:
    status, text = ANSWERS[path]
    head, _, body = talk(get(path)).partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert body == text
    assert f"Content-Length: {len(text)}" in head
    kind = "text/plain; version=0.0.4" if status == 200 else "text/plain; charset"
    assert f"Content-Type: {kind}" in head


def test_a_connection_stays_open_for_the_next_scrape() -> None:
    said = talk(get("/healthz", ""), get("/nodes/node-0/metrics"))
    assert said.count("HTTP/1.1 200 OK") == 2
    assert "Connection: keep-alive" in said


REFUSED = {
    "POST /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}": 405,
    "GET /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}": 405,
    "hello\r\n\r\n": 400,
    "GET / FTP/1.0\r\n\r\n": 400,
    f"GET /{'x' * 70000} HTTP/1.1\r\n\r\n": 400,
}


@pytest.mark.parametrize("request_", REFUSED)
def test_what_is_no_scrape_is_refused_and_hung_up_on(request_: str) -> None:
    assert talk(request_).startswith(f"HTTP/1.1 {REFUSED[request_]} ")


def test_it_listens_on_loopback_alone_and_a_taken_port_is_an_error() -> None:
    async def run(check: Callable[[int], Awaitable[None]]) -> None:
        serving = await server.serve(scrape, 0)
        host, port = serving.sockets[0].getsockname()
        assert host == "127.0.0.1"
        try:
            await check(port)
        finally:
            serving.close()

    async def again(port: int) -> None:
        with pytest.raises(OSError, match="address already in use"):
            await server.serve(scrape, port)

    asyncio.run(run(again))
