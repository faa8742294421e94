"""One OpenStack cloud: whose credentials, which region, and the clients of its services.

Credentials come from where OpenStack's own clients take them: an entry of ``clouds.yaml``, else the ``OS_``
variables of an openrc file. Nothing is asked of the cloud before a client is used, and nothing is stored.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuform.errors import Failure, InputError, Refusal
from gpuform.openstack import clouds_yaml

MICROVERSION = "1.10"
"""The container-infra API that is asked for: node groups are 1.9, empty ones 1.10.

Source: magnum/api/rest_api_version_history.rst. A later one is not asked for: 1.13 renames ``stack_id``.
"""

_MAGNUM = "container-infra"
_FORBIDDEN = 403
_BY_PASSWORD = ("password", "v3password")  # keystoneauth takes them without one, and fails at the login
_NEWEST = "OpenStack-API-Maximum-Version"
_TIMEOUT_S = 60  # of one request; Magnum answers a create before it makes anything
_FILES = (
    "clouds.yaml (here, in ~/.config/openstack or in /etc/openstack, or where OS_CLIENT_CONFIG_FILE says)"
)
_SOURCE_IT = "or source the openrc file that the cloud's dashboard hands out"
_NO_ANSWER = "check the network, the address in clouds.yaml or OS_AUTH_URL, and a proxy"


class Refused(Refusal):
    """An answer of the cloud that is an error; ``status`` is HTTP's, ``said`` the service's own words."""

    def __init__(self, call: str, status: int, said: str) -> None:
        """Name the call as the subject."""
        super().__init__(call, f"HTTP {status}: {said}", "check the credentials, their roles and the region")
        self.status = status
        self.said = said

    @property
    def denied(self) -> bool:
        """Whether the service's policy does not let the caller ask."""
        return self.status == _FORBIDDEN


@dataclass(frozen=True)
class Cloud:
    """A cloud as `connect` found it; ``name`` is its entry of clouds.yaml, or ``OS_ variables``.

    Each client logs in when first used; use them within `answers`, which turns their errors into ours.
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
        """openstacksdk's connection, for every service but Magnum (it has no node groups)."""
        import openstack.connection

        return openstack.connection.Connection(config=self.config, session=self.session)

    @cached_property
    def magnum_address(self) -> str:
        """Where Magnum answers, as the catalogue says; logs in."""
        override = self.config.config.get("container_infra_endpoint_override")
        if override:
            return str(override)
        found = self.session.get_endpoint(
            service_type=_MAGNUM,
            region_name=self.region or None,
            interface=self.config.get_interface(_MAGNUM) or "public",
        )
        if not found:
            where = f"region {self.region}" if self.region else "any region"
            fact = f"its catalogue has no service {_MAGNUM} (Magnum) in {where}"
            raise Failure(
                f"cloud {self.name}", fact, "check the region; 'openstack catalog list' says what there is"
            )
        return str(found)

    def newest_api(self) -> str:
        """The newest container-infra API that the cloud speaks, as its answers say: ``1.14``."""
        with answers("openstack coe cluster list"):
            answer = self.session.get(self.magnum_address, raise_exc=False)
        newest = str(answer.headers.get(_NEWEST) or "").split()
        return newest[-1] if newest else "1.1"  # what a Magnum speaks that says nothing of versions


def connect(
    cloud: str | None = None, region: str | None = None, auth: Mapping[str, Any] | None = None, **other: Any
) -> Cloud:
    """The cloud of a clouds.yaml entry, else of OS_CLOUD, else of the OS_ variables.

    ``auth`` and ``other`` are settings of keystoneauth and of clouds.yaml that go before what is found there.
    Raises InputError where openstacksdk is not installed, where clouds.yaml is broken, where the entry or
    region does not exist, and where no credentials are found; nothing is asked of the cloud yet.
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
        with warnings.catch_warnings():  # it warns of what it will drop, though nobody here uses it
            warnings.simplefilter("ignore")
            files = openstack.config.OpenStackConfig()
            config = files.get_one(cloud=wanted, **given)
    except exceptions.ConfigException as error:
        raise clouds_yaml.trouble(wanted) or _wrong(wanted, region, str(error)) from None
    except Exception as error:  # keystoneauth names what is missing, each plugin by an error of its own
        raise clouds_yaml.trouble(wanted) or no_credentials(wanted, str(error)) from None
    missing = _missing(config.config)
    if missing:
        raise clouds_yaml.trouble(wanted) or no_credentials(wanted, missing)
    auth_url = config.config.get("auth", {}).get("auth_url")
    named = "auth_url" if (auth or {}).get("auth_url") else clouds_yaml.source(files.config_filename, wanted)
    wrong = clouds_yaml.address(auth_url, named) if auth_url else None
    if wrong:
        raise wrong
    return Cloud(wanted or "of the OS_ variables", str(config.region_name or ""), config)


def _missing(config: Mapping[str, Any]) -> str:
    """What of a login is not there, in words."""
    auth = config.get("auth", {})
    if not auth.get("auth_url") and config.get("auth_type") != "none":
        return "no address of an identity service (auth_url)"
    if config.get("auth_type") in _BY_PASSWORD and auth.get("password") is None:
        return "no password"
    return ""


def _auth(auth: Mapping[str, Any], cloud: str | None) -> dict[str, Any]:
    """What goes before clouds.yaml. An application credential needs no OS_AUTH_TYPE with us, as with Pulumi's
    provider; with OpenStack's clients it does."""
    given = {key: value for key, value in auth.items() if value not in (None, "")}
    secret = given.get("application_credential_secret")
    if not cloud and not os.environ.get("OS_AUTH_TYPE"):
        secret = secret or os.environ.get("OS_APPLICATION_CREDENTIAL_SECRET")
    kind = "v3applicationcredential" if secret else "v3token" if given.get("token") else None
    return {**({"auth": given} if given else {}), **({"auth_type": kind} if kind else {})}


def no_credentials(cloud: str | None, found: str) -> InputError:
    """The error for missing credentials; it names both places where they could be."""
    path = f"cluster.cloud ({cloud})" if cloud else "cluster.cloud"
    return InputError(
        path,
        f"no credentials for OpenStack: {found.rstrip('.')}",
        f"name an entry of {_FILES}, {_SOURCE_IT}, which sets OS_AUTH_URL, OS_USERNAME, OS_PASSWORD, "
        "OS_PROJECT_NAME and OS_USER_DOMAIN_NAME (or OS_APPLICATION_CREDENTIAL_ID and _SECRET)",
    )


def _wrong(cloud: str | None, region: str | None, said: str) -> InputError:
    if region and "region" in said.lower():
        return InputError("cluster.region", f"{region}: {said.rstrip('.')}", "use one that clouds.yaml lists")
    return no_credentials(cloud, said)


@contextmanager
def answers(call: str) -> Iterator[None]:
    """Turn what the clients raise into ours; ``call`` is the command to try by hand, or what was asked.

    Raises Refused where the cloud answers with an error, Failure where it does not answer, refuses the login,
    or has no such service.
    """
    import keystoneauth1.exceptions as keystone
    import openstack.exceptions as sdk

    try:
        yield
    except keystone.Unauthorized as error:
        raise Failure(call, f"the credentials are refused ({error})", _renew()) from None
    except (keystone.HttpError, sdk.HttpException) as error:
        status = int(getattr(error, "http_status", None) or getattr(error, "status_code", None) or 0)
        raise Refused(call, status, str(getattr(error, "details", None) or error)) from None
    except (keystone.EndpointNotFound, keystone.EmptyCatalog) as error:
        remedy = "check the region; is the service installed there? 'openstack catalog list' says"
        raise Failure(call, str(error), remedy) from None
    except (keystone.ClientException, sdk.SDKException, OSError) as error:
        raise Failure(call, f"no answer: {error}", _NO_ANSWER) from None


def _renew() -> str:
    return "renew them in clouds.yaml or source a fresh openrc file; 'openstack token issue' tries them"
