"""The HTTP server for scrapes, on loopback: ``/nodes/NODE/metrics`` and ``/healthz``.

Just enough of HTTP/1.1 for Prometheus and curl: GET, connections that stay open, no bodies, no compression.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from urllib.parse import unquote

from lab.simulator.dcgm.exposition import CONTENT_TYPE

log = logging.getLogger("simulator")
HOST = "127.0.0.1"
IDLE = 120.0
"""Seconds after which a silent connection is closed."""
HEAD = 16 * 1024
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Scrape = Callable[[str], tuple[int, str]]


async def serve(scrape: Scrape, port: int) -> asyncio.Server:
    """Raises OSError if the port is taken; 0 is any free port."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            while await _answer(scrape, reader, writer):
                pass
        writer.close()

    return await asyncio.start_server(one, HOST, port, limit=HEAD)


async def _answer(scrape: Scrape, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answer one request; False when the connection is to be closed."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE)
    except asyncio.LimitOverrunError:
        await _send(writer, 400, "the request header is too long\n", keep=False)
        return False
    first, *headers = head.decode("latin-1").split("\r\n")
    words = first.split()
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        await _send(writer, 400, "not an HTTP request\n", keep=False)
        return False
    fields = {
        name.strip().lower(): value.strip().lower() for name, _, value in (h.partition(":") for h in headers)
    }
    keep = fields.get("connection", "keep-alive" if words[2] == "HTTP/1.1" else "close") != "close"
    if words[0] != "GET" or fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        await _send(writer, 405, "only GET is supported\n", keep=False)
        return False
    await _send(writer, *_found(scrape, words[1].partition("?")[0]), keep=keep)
    return keep


def _found(scrape: Scrape, path: str) -> tuple[int, str]:
    if path == "/healthz":
        return 200, "ok\n"
    match path.split("/"):
        case ["", "nodes", name, "metrics"] if name:
            try:
                return scrape(unquote(name))
            except Exception:  # one broken node must not end the server
                log.exception("%s: cannot be scraped", name)
                return 500, f"{name}: see the simulator's log\n"
    return 404, "the paths are /nodes/NODE/metrics and /healthz\n"


async def _send(writer: asyncio.StreamWriter, status: int, text: str, keep: bool) -> None:
    body = text.encode()
    kind = CONTENT_TYPE if status == 200 else "text/plain; charset=utf-8"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    head += f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
