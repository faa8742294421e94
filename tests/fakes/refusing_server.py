"""A server with TLS that, like an API server, accepts any client and answers 401."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

UNAUTHORIZED = {"kind": "Status", "status": "Failure", "message": "Unauthorized", "code": 401}


class Refuses(BaseHTTPRequestHandler):
    """Answers 401 as an API server does."""

    def do_GET(self) -> None:
        body = json.dumps(UNAUTHORIZED).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(HTTPServer):
    """Ignores failed handshakes."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serve_refusals(certificates: Path) -> Iterator[str]:
    """Address of the server; the folder is one of `tests.openstack.authority.write_certificates`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
    server = Server(("127.0.0.1", 0), Refuses)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
