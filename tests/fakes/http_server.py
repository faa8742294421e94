"""A web server on this machine for the time of a test."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(
    handler: Callable[..., BaseHTTPRequestHandler], shown: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Host and port of the server, which speaks TLS if a certificate is given."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if shown:
            server.socket = shown.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
