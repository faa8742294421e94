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

from gpuform.checkout.errors import Failure, InputError, ServiceError
from gpuform.clients.openstack import clouds_yaml

MICROVERSION = "1.10"
"""The requested version of the container-infra API: node groups need 1.9, empty ones 1.10.

Source: magnum/api/rest_api_version_history.rst. Not a later one: 1.13 renames ``stack_id``.
"""

_HTTP_FORBIDDEN = 403
_PASSWORD_AUTH_TYPES = ("password", "v3password")  # keystoneauth accepts them without one, and fails at login
_NEWEST_VERSION_HEADER = "OpenStack-API-Maximum-Version"
_TIMEOUT_S = 60  # per request; Magnum answers a create before it creates anything
_CLOUDS_YAML = (
    "clouds.yaml (here, in ~/.config/openstack or in /etc/openstack, or where OS_CLIENT_CONFIG_FILE says)"
)
_OR_OPENRC = "or source the openrc file from the cloud's dashboard"
_RENEW_LOGIN = "renew them in clouds.yaml or source a fresh openrc file; 'openstack token issue' tests them"
_CHECK_NETWORK = "check the network, the address in clouds.yaml or OS_AUTH_URL, and a proxy"


class OpenstackError(ServiceError):
    """An error response of the cloud; ``status`` is the HTTP status, ``message`` the service's message."""

    def __init__(self, call: str, status: int, message: str) -> None:
        remedy = "check the credentials, their roles and the region"
        super().__init__(call, f"HTTP {status}: {message}", remedy)
        self.status = status
        self.message = message

    @property
    def denied(self) -> bool:
        return self.status == _HTTP_FORBIDDEN


@dataclass(frozen=True)
class Cloud:
    """A cloud as returned by `connect`; ``name`` is its entry of clouds.yaml, or ``of the OS_ variables``.

    Each client logs in at first use; use them within `translate_errors`, which turns their errors into ours.
    """

    name: str
    region: str
    config: Any = field(repr=False)  # openstack.config.cloud_region.CloudRegion

    @cached_property
    def session(self) -> Any:
        """keystoneauth's session: one login for all clients."""
        with translate_errors("openstack token issue"):
            return self.config.get_session()

    @cached_property
    def connection(self) -> Any:
        """openstacksdk's connection; it has no node groups of Magnum, so those are requested by path."""
        import openstack.connection

        with translate_errors("openstack token issue"):
            return openstack.connection.Connection(config=self.config, session=self.session)

    def newest_api_version(self) -> str:
        """The newest version of the container-infra API that the cloud reports: ``1.14``."""
        with translate_errors("openstack coe cluster list"):
            response = self.connection.container_infrastructure_management.get("/", raise_exc=False)
        newest = str(response.headers.get(_NEWEST_VERSION_HEADER) or "").split()
        return newest[-1] if newest else "1.1"  # the version of a Magnum that reports none


def connect(
    cloud: str | None = None, region: str | None = None, auth: Mapping[str, Any] | None = None, **more: Any
) -> Cloud:
    """The cloud of a clouds.yaml entry, else of OS_CLOUD, else of the OS_ variables.

    ``auth`` and ``more`` are settings of keystoneauth and clouds.yaml that override those in the file.
    Raises InputError if openstacksdk is not installed, if clouds.yaml is invalid, if the entry or region does
    not exist, and if credentials are missing; no request is sent yet.
    """
    try:
        import openstack.config
        from openstack import exceptions
    except ImportError:
        raise InputError("openstacksdk", "is not installed", "pip install 'gpuform[openstack]'") from None
    cloud_name = cloud or os.environ.get("OS_CLOUD") or None
    overrides = {key: value for key, value in more.items() if value not in (None, "")}
    overrides = {"api_timeout": _TIMEOUT_S, **_auth_settings(auth or {}, cloud_name), **overrides}
    if region:
        overrides["region_name"] = region
    try:
        with warnings.catch_warnings():  # its deprecation warnings do not apply here
            warnings.simplefilter("ignore")
            files = openstack.config.OpenStackConfig()
            config = files.get_one(cloud=cloud_name, **overrides)
    except Exception as error:  # each keystoneauth plugin has its own error for a missing setting
        message = str(error).rstrip(".")
        problem = credentials_error(cloud_name, message)
        if isinstance(error, exceptions.ConfigException) and region and "region" in message.lower():
            problem = InputError("cluster.region", f"{region}: {message}", "use one that clouds.yaml lists")
        raise clouds_yaml.find_error(cloud_name) or problem from None
    missing = _missing_credentials(config.config)
    if missing:
        raise clouds_yaml.find_error(cloud_name) or credentials_error(cloud_name, missing)
    auth_url = config.config.get("auth", {}).get("auth_url")
    source = clouds_yaml.auth_url_source(files.config_filename, cloud_name)
    source = "auth_url" if (auth or {}).get("auth_url") else source
    if auth_url and (url_error := clouds_yaml.auth_url_error(auth_url, source)):
        raise url_error
    return Cloud(cloud_name or "of the OS_ variables", str(config.region_name or ""), config)


def _missing_credentials(config: Mapping[str, Any]) -> str:
    auth = config.get("auth", {})
    if not auth.get("auth_url") and config.get("auth_type") != "none":
        return "no address of an identity service (auth_url)"
    if config.get("auth_type") in _PASSWORD_AUTH_TYPES and auth.get("password") is None:
        return "no password"
    return ""


def _auth_settings(auth: Mapping[str, Any], cloud: str | None) -> dict[str, Any]:
    """Settings that override clouds.yaml.

    As with Pulumi's provider, and unlike OpenStack's clients, an application credential needs no
    OS_AUTH_TYPE.
    """
    settings = {key: value for key, value in auth.items() if value not in (None, "")}
    secret = settings.get("application_credential_secret")
    if not cloud and not os.environ.get("OS_AUTH_TYPE"):
        secret = secret or os.environ.get("OS_APPLICATION_CREDENTIAL_SECRET")
    auth_type = "v3applicationcredential" if secret else "v3token" if settings.get("token") else None
    return {**({"auth": settings} if settings else {}), **({"auth_type": auth_type} if auth_type else {})}


def credentials_error(cloud: str | None, fact: str) -> InputError:
    path = f"cluster.cloud ({cloud})" if cloud else "cluster.cloud"
    return InputError(
        path,
        f"no credentials for OpenStack: {fact.rstrip('.')}",
        f"name an entry of {_CLOUDS_YAML}, {_OR_OPENRC}, which sets OS_AUTH_URL, OS_USERNAME, OS_PASSWORD, "
        "OS_PROJECT_NAME and OS_USER_DOMAIN_NAME (or OS_APPLICATION_CREDENTIAL_ID and _SECRET)",
    )


@contextmanager
def translate_errors(call: str) -> Iterator[None]:
    """Turn the clients' errors into ours; ``call`` is the request, or the command to try by hand.

    Raises Refused if the cloud responds with an error, Failure if it does not respond, refuses the login, or
    lacks the service.
    """
    import keystoneauth1.exceptions as keystone
    import openstack.exceptions as sdk

    try:
        yield
    except keystone.Unauthorized as error:
        raise Failure(call, f"the credentials are refused ({error})", _RENEW_LOGIN) from None
    except (keystone.HttpError, sdk.HttpException) as error:
        status = int(getattr(error, "http_status", None) or getattr(error, "status_code", None) or 0)
        raise OpenstackError(call, status, str(getattr(error, "details", None) or error)) from None
    except (keystone.EndpointNotFound, keystone.EmptyCatalog) as error:
        remedy = "check the region, and with 'openstack catalog list' whether it has the service"
        raise Failure(call, str(error), remedy) from None
    except (keystone.ClientException, sdk.SDKException, OSError) as error:
        raise Failure(call, f"no answer: {error}", _CHECK_NETWORK) from None
