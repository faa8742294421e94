"""The provider's own settings: the official one's inputs, as openstacksdk takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuform.errors import Failure, InputError
from gpuform.openstack.cloud import connect
from gpuform.plugins.openstack.api import ApiError, Magnum
from gpuform.plugins.properties import reveal

# Left side: inputs of pulumi_openstack's Provider; right side: what keystoneauth's plugins call them. What is
# not set falls back to clouds.yaml and to the OS_ variables in openstacksdk itself.
_AUTH: Mapping[str, str] = {
    "authUrl": "auth_url",
    "userName": "username",
    "userId": "user_id",
    "password": "password",
    "token": "token",
    "tenantId": "project_id",
    "tenantName": "project_name",
    "userDomainId": "user_domain_id",
    "userDomainName": "user_domain_name",
    "projectDomainId": "project_domain_id",
    "projectDomainName": "project_domain_name",
    "domainId": "domain_id",
    "domainName": "domain_name",
    "defaultDomain": "default_domain_id",
    "applicationCredentialId": "application_credential_id",
    "applicationCredentialName": "application_credential_name",
    "applicationCredentialSecret": "application_credential_secret",
}
_OTHER: Mapping[str, str] = {"cacertFile": "cacert", "cert": "cert", "key": "key"}
# They tune the official provider's own HTTP client; nothing that Magnum is asked depends on them.
_WITHOUT_EFFECT = ("allowReauth", "delayedAuth", "disableNoCacheHeader", "enableLogging", "maxRetries")
_REFUSED = ("swauth",)
_OWN = ("cloud", "region", "insecure", "endpointType", "endpointOverrides", "systemScope", "version")
KNOWN = frozenset({*_AUTH, *_OTHER, *_WITHOUT_EFFECT, *_REFUSED, *_OWN})


class Clouds:
    """One connection per region, made when a resource in it is first asked for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take the provider's inputs; nothing is asked, and nothing of them is kept but in this process."""
        self._config = {
            key: _plain(value) for key, value in reveal(dict(config)).items() if value is not None
        }
        self._open: dict[str, Magnum] = {}

    def of(self, region: str | None = None) -> Magnum:
        """Magnum in a region, the provider's own by default. Raises `ApiError` without credentials."""
        wanted = region or self._config.get("region") or ""
        if wanted not in self._open:
            try:
                cloud = self._connect(wanted)
            except (Failure, InputError) as failure:
                raise ApiError(failure) from None
            # A region may be named, and be the provider's own: that is one login and not two.
            same = (one for one in self._open.values() if one.cloud.region == cloud.region)
            self._open[wanted] = next(same, None) or Magnum(cloud)
        return self._open[wanted]

    def _connect(self, region: str) -> Any:
        config = self._config
        auth = {ours: config[name] for name, ours in _AUTH.items() if config.get(name)}
        if config.get("systemScope"):
            auth["system_scope"] = "all"
        other = {ours: config[name] for name, ours in _OTHER.items() if config.get(name)}
        if config.get("insecure") is not None:
            other["verify"] = not config["insecure"]
        if config.get("endpointType"):
            other["interface"] = str(config["endpointType"]).removesuffix("URL")
        for service, address in (config.get("endpointOverrides") or {}).items():
            other[f"{str(service).replace('-', '_')}_endpoint_override"] = address
        return connect(config.get("cloud"), region or None, auth, **other)


def failures(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What of the provider's inputs the stand-in cannot do."""
    found = [(name, "the stand-in logs in by keystone only; leave it out") for name in _REFUSED]
    return [one for one in found if _plain(reveal(config.get(one[0])))]


def _plain(value: Any) -> Any:
    """Inputs of a provider that are no text come as JSON in a text."""
    if isinstance(value, str) and value[:1] in ("{", "t", "f") and value not in ("t", "f"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
