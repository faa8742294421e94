"""A filter in the pipeline of Magnum's API, after authentication: records every request.

Writes one line of JSON per request into the file that the environment names.
"""

from __future__ import annotations

import io
import json
import os
import threading

_LOCK = threading.Lock()


def factory(_settings, **_options):
    """Factory for paste.deploy."""
    return Recorder


class Recorder:
    def __init__(self, app):
        self._app = app
        self._file = os.environ["GPUFORM_RECORDED"]

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        seen = {
            "project": environ.get("HTTP_X_PROJECT_ID"),
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"],
            "query": environ.get("QUERY_STRING", ""),
            "version": environ.get("HTTP_OPENSTACK_API_VERSION", ""),
            "agent": environ.get("HTTP_USER_AGENT", ""),
            "body": json.loads(body) if body else None,
        }

        def began(status, headers, *rest):
            line = json.dumps(seen | {"status": int(status.split()[0])})
            with _LOCK, open(self._file, "a") as file:  # noqa: PTH123 - as small as can be
                file.write(f"{line}\n")
            return start_response(status, headers, *rest)

        return self._app(environ, began)
