"""A Prometheus that the cluster has: where it is, as whom it is asked, and how it finds rules and targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from infra.model.aws.values import Region
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    LabelKey,
    LabelValue,
    Model,
    Name,
    ObjectName,
    Strict,
    matching,
    option,
    refusing,
    required,
)
from infra.model.base.hostnames import is_plain_url

Address = Annotated[
    Strict,
    refusing(
        lambda value: not is_plain_url(value, "http", "https"),
        "is not a plain http or https address",
        "write it as https://..., without a user, a token or a query in it",
    ),
]
_NAME = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
ServiceAddress = Annotated[
    Strict,
    matching(
        rf"{_NAME}\.{_NAME}:[1-9]\d{{0,4}}",
        "a Service with its namespace and port",
        "write it as prometheus-operated.monitoring:9090",
    ),
]
SECRET_KEYS: Mapping[str, tuple[str, str]] = {
    key: ("a secret does not belong in this file", "name a Secret in the cluster: secret: NAME")
    for key in ("password", "username", "token", "bearer_token", "basic_auth", "authorization")
}
"""Keys that would hold a secret itself: (fact, remedy) for each."""


class SigV4(Model):
    """Requests signed with the AWS identity of the one who asks, as Amazon Managed Prometheus needs them."""

    region: Region = required("Region of the workspace, for example eu-central-1.")


class ExistingPrometheus(Model):
    """A Prometheus that the cluster has: its own, or one behind an address (Thanos, Mimir)."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = SECRET_KEYS

    service: ServiceAddress | None = option(
        "Its Service as NAME.NAMESPACE:PORT, for example prometheus-operated.monitoring:9090; this or url."
    )
    url: Address | None = option("Address of its API for pods, and for the commands on this machine.")
    secret: ObjectName | None = option(
        "Secret with the keys username and password, which url asks for. You create it in each namespace "
        "that docs/howto/monitoring.md lists."
    )
    token_secret: ObjectName | None = option("Secret with the key token, in place of username and password.")
    sigv4: SigV4 | None = Field(default=None)
    labels: dict[LabelKey, LabelValue] = option(
        "Labels by which it selects monitors and rules, for example {release: kube-prometheus-stack}.", dict
    )
    config_namespace: Name | None = option(
        "Its namespace, if it has no prometheus-operator: rules and scrape configurations are then files of "
        "a ConfigMap there, which its owner mounts (docs/howto/monitoring.md)."
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> ExistingPrometheus:
        if (self.service is None) == (self.url is None):
            fact = "url is given too" if self.url else "missing, and url too"
            raise InputError("service", fact, "give one of the two")
        ways = [key for key in ("secret", "token_secret", "sigv4") if getattr(self, key)]
        if len(ways) > 1:
            raise InputError(ways[1], f"{ways[0]} is given too", "give one of the two")
        if ways and self.url is None:
            fact = "a Service is asked through the API server's proxy, which forwards no credentials"
            raise InputError(ways[0], fact, "give url in place of service, or leave it out")
        if ways and urlsplit(self.url).scheme == "http":
            fact = f"http sends the credentials of {ways[0]} unencrypted"
            raise InputError("url", fact, f"use https, or leave {ways[0]} out")
        return self

    @property
    def is_authenticated(self) -> bool:
        """Whether its address asks for credentials."""
        return self.credentials is not None or self.sigv4 is not None

    @property
    def credentials(self) -> tuple[str, tuple[str, ...]] | None:
        """Name and keys of the Secret that its address asks for; None without one."""
        if self.secret:
            return self.secret, ("username", "password")
        return (self.token_secret, ("token",)) if self.token_secret else None
