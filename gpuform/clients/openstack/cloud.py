"""One OpenStack cloud: credentials, region, and the clients of its services.

Credentials come from where OpenStack's own clients take them: an entry of ``clouds.yaml``, else the ``OS_``
variables of an openrc file. No request is sent before a client is used, and nothing is stored.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuform.checkout.errors import Failure, InputError, Refusal
from gpuform.clients.openstack import clouds_yaml

MICROVERSION = "1.10"
"""The requested version of the container-infra API: node groups need 1.9, empty ones 1.10.

Source: magnum/api/rest_api_version_history.rst. Not a later one: 1.13 renames ``stack_id``.
"""

_FORBIDDEN = 403
_BY_PASSWORD = ("password", "v3password")  # keystoneauth accepts them without one, and fails at login
_NEWEST = "OpenStack-API-Maximum-Version"
_TIMEOUT_S = 60  # per request; Magnum answers a create before it creates anything
_FILES = (
    "clouds.yaml (here, in ~/.config/openstack or in /etc/openstack, or where OS_CLIENT_CONFIG_FILE says)"
)
_SOURCE_IT = "or source the openrc file from the cloud's dashboard"
_RENEW = "renew them in clouds.yaml or source a fresh openrc file; 'openstack token issue' tests them"
_NO_ANSWER = "check the network, the address in clouds.yaml or OS_AUTH_URL, and a proxy"


class Refused(Refusal):
    """An error response of the cloud; ``status`` is the HTTP status, ``said`` the service's message."""

    def __init__(self, call: str, status: int, said: str) -> None:
        super().__init__(call, f"HTTP {status}: {said}", "check the credentials, their roles and the region")
        self.status = status
        self.said = said

    @property
    def denied(self) -> bool:
        return self.status == _FORBIDDEN


@dataclass(frozen=True)
class Cloud:
    """A cloud as returned by `connect`; ``name`` is its entry of clouds.yaml, or ``of the OS_ variables``.

    Each client logs in at first use; use them within `answers`, which turns their errors into ours.
    """

    name: str
    region: str
    config: Any = field(repr=False)  # openstack.config.cloud_region.CloudRegion

    @cached_property
    def session(self) -> Any:
        """keystoneauth's session: one login for all clients."""
        return self.config.get_session()

    @cached_property
    def connection(self) -> Any:
        """openstacksdk's connection; it has no node groups of Magnum, so those are requested by path."""
        import openstack.connection

        return openstack.connection.Connection(config=self.config, session=self.session)

    def newest_api(self) -> str:
        """The newest version of the container-infra API that the cloud reports: ``1.14``."""
        with answers("openstack coe cluster list"):
            answer = self.connection.container_infrastructure_management.get("/", raise_exc=False)
        newest = str(answer.headers.get(_NEWEST) or "").split()
        return newest[-1] if newest else "1.1"  # the version of a Magnum that reports none


def connect(
    cloud: str | None = None, region: str | None = None, auth: Mapping[str, Any] | None = None, **other: Any
) -> Cloud:
    """The cloud of a clouds.yaml entry, else of OS_CLOUD, else of the OS_ variables.

    ``auth`` and ``other`` are settings of keystoneauth and clouds.yaml that override those in the file.
    Raises InputError if openstacksdk is not installed, if clouds.yaml is invalid, if the entry or region does
    not exist, and if credentials are missing; no request is sent yet.
    """
    try:
        import openstack.config
        from openstack import exceptions
    except ImportError:
        raise InputError("openstacksdk", "is not installed", "pip install 'gpuform[openstack]'") from None
    wanted = cloud or os.environ.get("OS_CLOUD") or None
    given = {key: value for key, value in other.items() if value not in (None, "")}
    given = {"api_timeout": _TIMEOUT_S, **_auth(auth or {}, wanted), **given}
    if region:
        given["region_name"] = region
    try:
        with warnings.catch_warnings():  # its deprecation warnings do not apply here
            warnings.simplefilter("ignore")
            files = openstack.config.OpenStackConfig()
            config = files.get_one(cloud=wanted, **given)
    except Exception as error:  # each keystoneauth plugin has its own error for a missing setting
        said = str(error).rstrip(".")
        wrong = no_credentials(wanted, said)
        if isinstance(error, exceptions.ConfigException) and region and "region" in said.lower():
            wrong = InputError("cluster.region", f"{region}: {said}", "use one that clouds.yaml lists")
        raise clouds_yaml.trouble(wanted) or wrong from None
    missing = _missing(config.config)
    if missing:
        raise clouds_yaml.trouble(wanted) or no_credentials(wanted, missing)
    auth_url = config.config.get("auth", {}).get("auth_url")
    named = "auth_url" if (auth or {}).get("auth_url") else clouds_yaml.source(files.config_filename, wanted)
    if auth_url and (bad := clouds_yaml.address(auth_url, named)):
        raise bad
    return Cloud(wanted or "of the OS_ variables", str(config.region_name or ""), config)


def _missing(config: Mapping[str, Any]) -> str:
    auth = config.get("auth", {})
    if not auth.get("auth_url") and config.get("auth_type") != "none":
        return "no address of an identity service (auth_url)"
    if config.get("auth_type") in _BY_PASSWORD and auth.get("password") is None:
        return "no password"
    return ""


def _auth(auth: Mapping[str, Any], cloud: str | None) -> dict[str, Any]:
    """Settings that override clouds.yaml.

    As with Pulumi's provider, and unlike OpenStack's clients, an application credential needs no
    OS_AUTH_TYPE.
    """
    given = {key: value for key, value in auth.items() if value not in (None, "")}
    secret = given.get("application_credential_secret")
    if not cloud and not os.environ.get("OS_AUTH_TYPE"):
        secret = secret or os.environ.get("OS_APPLICATION_CREDENTIAL_SECRET")
    kind = "v3applicationcredential" if secret else "v3token" if given.get("token") else None
    return {**({"auth": given} if given else {}), **({"auth_type": kind} if kind else {})}


def no_credentials(cloud: str | None, found: str) -> InputError:
    path = f"cluster.cloud ({cloud})" if cloud else "cluster.cloud"
    return InputError(
        path,
        f"no credentials for OpenStack: {found.rstrip('.')}",
        f"name an entry of {_FILES}, {_SOURCE_IT}, which sets OS_AUTH_URL, OS_USERNAME, OS_PASSWORD, "
        "OS_PROJECT_NAME and OS_USER_DOMAIN_NAME (or OS_APPLICATION_CREDENTIAL_ID and _SECRET)",
    )


@contextmanager
def answers(call: str) -> Iterator[None]:
    """Turn the clients' errors into ours; ``call`` is the request, or the command to try by hand.

    Raises Refused if the cloud responds with an error, Failure if it does not respond, refuses the login, or
    lacks the service.
    """
    import keystoneauth1.exceptions as keystone
    import openstack.exceptions as sdk

    try:
        yield
    except keystone.Unauthorized as error:
        raise Failure(call, f"the credentials are refused ({error})", _RENEW) from None
    except (keystone.HttpError, sdk.HttpException) as error:
        status = int(getattr(error, "http_status", None) or getattr(error, "status_code", None) or 0)
        raise Refused(call, status, str(getattr(error, "details", None) or error)) from None
    except (keystone.EndpointNotFound, keystone.EmptyCatalog) as error:
        remedy = "check the region, and with 'openstack catalog list' whether it has the service"
        raise Failure(call, str(error), remedy) from None
    except (keystone.ClientException, sdk.SDKException, OSError) as error:
        raise Failure(call, f"no answer: {error}", _NO_ANSWER) from None
