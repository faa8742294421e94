"""Requests to OpenStack's services by path; only ``delete`` changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gpuform.clients.openstack.cloud import Refused, answers

Json = Mapping[str, Any]

SERVICES: Mapping[str, str] = {
    "magnum": "container_infrastructure_management",
    "nova": "compute",
    "glance": "image",
    "neutron": "network",
    "cinder": "block_storage",
    "octavia": "load_balancer",
    "heat": "orchestration",
}
"""Services by their project names, with the attribute of openstacksdk's ``Connection`` for each."""

_MISSING = 404
_NODE_GROUPS = "1.9"
"""The oldest API version of Magnum with node groups (magnum/api/rest_api_version_history.rst)."""


class Api:
    """A cloud's services within one project. Errors as `gpuform.clients.openstack.cloud.answers`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def get(self, service: str, path: str, **params: Any) -> Json:
        return dict(self._ask("GET", service, path, params).json())

    def find(self, service: str, path: str) -> Json | None:
        try:
            return self.get(service, path)
        except Refused as refused:
            if refused.status == _MISSING:
                return None
            raise

    def listed(self, service: str, path: str, key: str, **params: Any) -> list[Json]:
        """All items of a list, over all pages; ``key`` is the name of the list in the response."""
        found: list[Json] = []
        more: dict[str, Any] | None = params
        while more is not None:
            answer = self.get(service, path, **more)
            found += answer.get(key) or []
            more = next_page(answer, key, more)
        return found

    def delete(self, service: str, path: str, **params: Any) -> None:
        """Request a deletion; an object that is already gone is not an error."""
        try:
            self._ask("DELETE", service, path, params)
        except Refused as refused:
            if refused.status != _MISSING:
                raise

    def _ask(self, method: str, service: str, path: str, params: Mapping[str, Any]) -> Any:
        call = f"{method} {service}{path}"
        headers = {"Accept": "application/json"}
        if service == "magnum":  # openstacksdk would send another name
            headers["OpenStack-API-Version"] = f"container-infra {_NODE_GROUPS}"
        with answers(call):
            client = getattr(self._connection, SERVICES[service])
            answer = client.request(path, method, params=dict(params), headers=headers)
            if answer.status_code >= 400:
                raise Refused(call, answer.status_code, _said(answer))
        return answer


def next_page(answer: Json, key: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parameters of the next page; None after the last one.

    Services give it as a link. Only its query is used: its host may be reachable only within the cloud.
    """
    links = answer.get(f"{key}_links") or ()
    link = answer.get("next") or next((one["href"] for one in links if one.get("rel") == "next"), None)
    if not link:
        return None
    wanted = {**asked, **dict(parse_qsl(urlsplit(str(link)).query))}
    return wanted if wanted != asked else None


def moment(text: object) -> datetime | None:
    """A service's timestamp, in UTC if it names no offset; None if the text is not a timestamp."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _said(answer: Any) -> str:
    """The message of an error response, which every service formats differently."""
    from openstack import exceptions

    try:
        exceptions.raise_from_response(answer)
    except exceptions.HttpException as error:
        return " ".join(str(error.details or answer.reason).split())
    return str(answer.reason)
