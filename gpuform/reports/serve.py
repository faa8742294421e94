"""Serves a page on loopback; each request renders it anew."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

from gpuform.checkout.errors import Failure

REFRESH_S = 15  # as often as Prometheus scrapes by default; a browser reloads the page by itself
LOOPBACK = ("127.0.0.1", "localhost")
PORT = 8790  # another is taken if it is in use


def page_server(render: Callable[[], str]) -> HTTPServer:
    """A server for ``serve_forever``; a Failure of ``render`` becomes a page that is reloaded, too."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Other sites must not read it by a name that they resolve to this address.
            if self.path != "/" or self.headers.get("Host", "").partition(":")[0] not in LOOPBACK:
                self.send_error(404)
                return
            try:
                status, kind, body = 200, "html", render()
            except Failure as failure:
                status, kind, body = 503, "plain", f"failed: {failure}\n"
            self.send_response(status)
            self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
            self.send_header("Refresh", str(REFRESH_S))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not printed."""

    try:
        return HTTPServer((LOOPBACK[0], PORT), Page)
    except OSError:
        return HTTPServer((LOOPBACK[0], 0), Page)
