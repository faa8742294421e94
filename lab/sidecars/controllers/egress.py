"""kube-proxy of the simulated cluster: the API server's connections to Services end at programs on loopback.

The API server calls webhooks and aggregated APIs at the Service's cluster address, to which nothing on this
machine routes. Its egress selector sends the connections into the cluster, and no others, as HTTP CONNECT to
a socket (kubernetes.io, "Set up Konnectivity service"; k8s.io/apiserver, pkg/server/egressselector). So the
chart's webhook configurations, its CRDs, its APIServices and the certificates in them stay as the chart and
the controller write them.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_CHUNK = 65536
_FAILED = b"HTTP/1.1 503 Service Unavailable\r\n\r\n"


def socket_name(home: Path) -> str:
    """The abstract socket of one cluster: a path may be longer than the 107 bytes that unix(7) allows."""
    return f"@gpuform-egress-{hashlib.sha256(str(home).encode()).hexdigest()[:24]}"


@dataclass(frozen=True)
class ProxyTarget:
    """A program's loopback port, and what the client and the program get first."""

    port: int
    client_prefix: bytes = b""
    program_prefix: bytes = b""


class Egress:
    """Answers CONNECT in a thread of its own; ``routes`` may be replaced at any time."""

    def __init__(self, name: str) -> None:
        self.routes: Mapping[str, int] = {}
        """Address and port of a Service with ready pods -> loopback port.

        Others are refused: the cluster has no other program, and outside another server may have the address.
        """
        self._service_ports: Mapping[str, int] = {}
        self._address = "\0" + name.removeprefix("@")
        self._loop = asyncio.new_event_loop()

    def start(self, service_ports: Mapping[str, int] | None = None) -> int:
        """Listen. Raises OSError if another process has the socket.

        Returns the loopback port of an HTTP proxy; controllers reach ``service_ports`` by name through it.
        """
        self._service_ports = dict(service_ports or {})
        server = self._loop.run_until_complete(asyncio.start_unix_server(self._handle_connect, self._address))
        assert server.is_serving()
        proxy = self._loop.run_until_complete(asyncio.start_server(self._forward, "127.0.0.1", 0))
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return int(proxy.sockets[0].getsockname()[1])

    async def _handle_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """CONNECT to a Service."""
        await _proxy(reader, writer, self._to_address)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request with an absolute address (RFC 9112, 3.2.2), and its answer."""
        await _proxy(reader, writer, self._to_name)

    def _to_address(self, head: bytes) -> ProxyTarget:
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        if method != "CONNECT":
            raise ValueError(method)
        return ProxyTarget(self.routes[target], client_prefix=b"HTTP/1.1 200 Connection established\r\n\r\n")

    def _to_name(self, head: bytes) -> ProxyTarget:
        method, target, remainder = head.split(b" ", 2)
        url = urlsplit(target.decode())
        path = url._replace(scheme="", netloc="").geturl() or "/"
        line, fields = remainder.split(b"\r\n", 1)
        request = b"%s %s %s\r\nConnection: close\r\n%s" % (method, path.encode(), line, fields)
        return ProxyTarget(self._service_ports[url.netloc], program_prefix=request)


async def _proxy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, find_target: Callable[[bytes], ProxyTarget]
) -> None:
    """Copy in both directions; ``find_target`` reads the head; it raises LookupError or ValueError."""
    try:
        target = find_target(await reader.readuntil(b"\r\n\r\n"))
        program_reader, program_writer = await asyncio.open_connection("127.0.0.1", target.port)
    except (OSError, LookupError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.write(_FAILED)
        await _close(writer)
        return
    writer.write(target.client_prefix)
    program_writer.write(target.program_prefix)
    await asyncio.gather(_copy(reader, program_writer), _copy(program_reader, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    except OSError:
        pass  # the other side has gone; what it was sent is lost in a real network, too
    await _close(target)


async def _close(writer: asyncio.StreamWriter) -> None:
    try:
        writer.close()
        await writer.wait_closed()
    except OSError:
        pass
