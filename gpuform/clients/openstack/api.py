"""Requests to OpenStack's services; only ``delete_load_balancer`` changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gpuform.checkout.errors import Failure
from gpuform.clients.openstack.cloud import OpenstackError, translate_errors

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

_NOT_FOUND = 404
_NODE_GROUPS_VERSION = "1.9"
"""The oldest API version of Magnum with node groups (magnum/api/rest_api_version_history.rst)."""


class Api:
    """A cloud's services within one project. Errors as `gpuform.clients.openstack.cloud.translate_errors`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def get(self, service: str, path: str, **params: Any) -> Json:
        call, headers = f"GET {service}{path}", {"Accept": "application/json"}
        if service == "magnum":  # openstacksdk would send another name
            headers["OpenStack-API-Version"] = f"container-infra {_NODE_GROUPS_VERSION}"
        with translate_errors(call):
            client = getattr(self._connection, SERVICES[service])
            response = client.request(path, "GET", params=params, headers=headers)
            if response.status_code >= 400:
                raise OpenstackError(call, response.status_code, _error_message(response))
        try:
            return dict(response.json())
        except ValueError:  # a proxy's page, or a login form
            fact, remedy = "is not a response from OpenStack: it is not JSON", "check the network and a proxy"
            raise Failure(call, fact, remedy) from None

    def find(self, service: str, path: str) -> Json | None:
        try:
            return self.get(service, path)
        except OpenstackError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def list_all(self, service: str, path: str, key: str, **params: Any) -> list[Json]:
        """All items of a list, over all pages; ``key`` is the name of the list in the response."""
        items: list[Json] = []
        page_params: dict[str, Any] | None = params
        while page_params is not None:
            response = self.get(service, path, **page_params)
            items += response.get(key) or []
            page_params = next_page_params(response, key, page_params)
        return items

    def delete_load_balancer(self, id: str) -> None:
        """Request its deletion with all its parts; one that is already gone is not an error."""
        with translate_errors(f"DELETE octavia/lbaas/loadbalancers/{id}"):
            self._connection.load_balancer.delete_load_balancer(id, cascade=True)


def next_page_params(response: Json, key: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parameters of the next page; None after the last one.

    Services give it as a link. Only its query is used: its host may be reachable only within the cloud.
    """
    links = response.get(f"{key}_links") or ()
    link = response.get("next") or next(
        (entry["href"] for entry in links if entry.get("rel") == "next"), None
    )
    if not link:
        return None
    next_params = {**params, **dict(parse_qsl(urlsplit(str(link)).query))}
    return next_params if next_params != params else None


def parse_timestamp(text: object) -> datetime | None:
    """A service's timestamp, in UTC if it names no offset; None if the text is not a timestamp."""
    try:
        timestamp = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)


def _error_message(response: Any) -> str:
    """The message of an error response, which every service formats differently."""
    from openstack import exceptions

    try:
        exceptions.raise_from_response(response)
    except exceptions.HttpException as error:
        return " ".join(str(error.details or response.reason).split())
    return str(response.reason)
