"""Magnum's API, as far as the health loop asks it: one node group, and its size.

With an application credential, whose parts are files in one folder, as a mounted Secret has them:
``auth_url``, ``application_credential_id``, ``application_credential_secret``, and, where they are needed,
``region_name``, ``interface`` (public if left out) and ``ca.crt``. It lies beside the health loop, in the
same ConfigMap. Standard library alone, Python 3.11 or newer.

Sources: keystone's API (v3, auth/tokens, application_credential); magnum/api/controllers/v1/nodegroup.py and
cluster_actions.py: ``node_count`` is the number of nodes after a resize, ``nodes_to_remove`` are servers.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

VERSION = "container-infra 1.10"
"""Of the API: the first in which a group may have no node, and that has node groups at all (1.9)."""
TYPES = ("container-infra", "container-infrastructure-management", "container-infrastructure")
"""Of the service in the catalog; the second is the official name, the others are aliases of it
[service-types-authority].
"""
TIMEOUT_S = 30.0
EARLY_S = 60.0  # that a token is not used any more before its end
LONGEST = 500  # characters of an answer that are repeated
AUTH_URL, ID, SECRET = "auth_url", "application_credential_id", "application_credential_secret"

Json = dict[str, Any]
TROUBLE = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)
"""What is raised where it is away, or says what nobody can read."""


class Missing(Exception):
    """There is no credential."""


class Refused(Exception):
    """Keystone or Magnum says no, and why; asked again, they say the same."""


class Magnum:
    """One cluster of it. Raises `Missing`, `Refused`, or one of ``TROUBLE``."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Asks nothing yet; ``cluster`` is its name or id."""
        self._folder, self._cluster = folder, urllib.parse.quote(cluster, safe="")
        self._token, self._endpoint, self._until = "", "", 0.0

    def there(self) -> None:
        """Raises `Missing` without a credential."""
        for name in (AUTH_URL, ID, SECRET):
            if not self._read(name):
                raise Missing(f"no credential: its Secret is not there, or has no {name}")

    def group(self, name: str) -> Json:
        """A node group: ``node_count``, ``min_node_count``, ``status``, ``status_reason``."""
        return self._call("GET", f"/clusters/{self._cluster}/nodegroups/{urllib.parse.quote(name, safe='')}")

    def resize(self, group: str, count: int, remove: tuple[str, ...] = ()) -> None:
        """Ask for so many nodes; these servers go."""
        body = {"node_count": count, "nodes_to_remove": list(remove), "nodegroup": group}
        self._call("POST", f"/clusters/{self._cluster}/actions/resize", body)

    def _read(self, name: str, otherwise: str = "") -> str:
        try:
            return (self._folder / name).read_text().strip() or otherwise
        except OSError:
            return otherwise

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        """Once more with another token, where the one at hand has ended before its time."""
        fresh = time.time() > self._until - EARLY_S
        if fresh:
            self._log_in()
        while True:
            head = {"X-Auth-Token": self._token, "OpenStack-API-Version": VERSION}
            try:
                return self._ask(method, f"{self._endpoint}{path}", head, body)[0]
            except urllib.error.HTTPError as error:
                if fresh or error.code != http.client.UNAUTHORIZED:
                    raise _judged(error, "Magnum") from error
            self._log_in()
            fresh = True

    def _log_in(self) -> None:
        self.there()
        own = {"id": self._read(ID), "secret": self._read(SECRET)}
        how = {"methods": ["application_credential"], "application_credential": own}
        base = self._read(AUTH_URL).rstrip("/")
        url = f"{base if base.endswith('/v3') else f'{base}/v3'}/auth/tokens"
        try:
            answer, headers = self._ask("POST", url, {}, {"auth": {"identity": how}})
        except urllib.error.HTTPError as error:
            raise _judged(error, "keystone") from error
        self._endpoint = self._of(answer["token"]["catalog"])
        self._token = str(headers["X-Subject-Token"])
        self._until = datetime.fromisoformat(answer["token"]["expires_at"]).timestamp()

    def _of(self, catalog: list[Json]) -> str:
        region, interface = self._read("region_name"), self._read("interface", "public")
        for service in catalog:
            for one in service.get("endpoints", ()) if service["type"] in TYPES else ():
                if one["interface"] == interface and region in ("", one.get("region_id"), one.get("region")):
                    base = str(one["url"]).rstrip("/")
                    return base if base.endswith("/v1") else f"{base}/v1"
        where = f" in region {region}" if region else ""
        raise Refused(f"the credential's catalog has no {interface} endpoint of Magnum{where}")

    def _ask(self, method: str, url: str, head: dict[str, str], body: Json | None) -> tuple[Json, Any]:
        if not url.startswith(("https://", "http://")):
            raise Refused(f"{url!r} is no address of HTTP")
        authority = self._folder / "ca.crt"
        own = str(authority) if authority.exists() else None
        tls = ssl.create_default_context(cafile=own) if url.startswith("https:") else None
        request = urllib.request.Request(url, method=method, headers=head)  # noqa: S310 (checked above)
        request.add_header("Accept", "application/json")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:  # noqa: S310
            return json.loads(answer.read() or b"{}"), answer.headers


def _judged(error: urllib.error.HTTPError, who: str) -> Exception:
    """`Refused` with the reason that was given; what may pass is one of ``TROUBLE``."""
    passes = error.code >= 500 or error.code == http.client.TOO_MANY_REQUESTS
    said = f"{who}: {error.code} {_reason(error)}"
    return OSError(said) if passes else Refused(said)


def _reason(error: urllib.error.HTTPError) -> str:
    """Magnum: ``errors[].detail``; keystone: ``error.message``; else the beginning of what came."""
    text = error.read(4 * LONGEST).decode(errors="replace")
    try:
        found = json.loads(text)
        if "errors" in found:
            return "; ".join(str(one.get("detail") or one.get("title")) for one in found["errors"])[:LONGEST]
        return str(found["error"]["message"])[:LONGEST]
    except (ValueError, KeyError, TypeError, AttributeError):
        return " ".join(text.split())[:LONGEST] or error.reason
