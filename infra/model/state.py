"""Where the engine keeps a stack's state, and which key protects the secrets in it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, model_validator

from infra.model.base import Model, listing
from infra.model.errors import InputError

# The engine's backends and key services that need no Pulumi account (Pulumi 3.256, `pulumi login` and
# `pulumi stack init --help`), with the format of each one's address.
BACKENDS = {
    "s3": "s3://BUCKET/PREFIX?region=REGION",
    "gs": "gs://BUCKET/PREFIX",
    "azblob": "azblob://CONTAINER/PREFIX",
    "file": "file:///FOLDER",
}
SECRETS_PROVIDERS = {
    "awskms": "awskms://alias/NAME?region=REGION",
    "gcpkms": "gcpkms://projects/PROJECT/locations/PLACE/keyRings/RING/cryptoKeys/KEY",
    "azurekeyvault": "azurekeyvault://VAULT.vault.azure.net/keys/KEY",
    "hashivault": "hashivault://KEY",
}


def _address(value: str, known: dict[str, str]) -> SplitResult:
    try:
        parts = urlsplit(value)
    except ValueError:
        raise InputError(
            "", f"{value!r} is not an address", f"write it as {next(iter(known.values()))}"
        ) from None
    if not parts.scheme or "://" not in value:
        raise InputError("", f"{value!r} has no scheme", f"write it as {next(iter(known.values()))}")
    if parts.scheme not in known:
        raise InputError("", f"unknown scheme {parts.scheme!r}", listing(known, parts.scheme))
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "",
            "carries a user or a password",
            "take it out: credentials come from the environment of the run",
        )
    return parts


def _backend(value: str) -> str:
    parts = _address(value, BACKENDS)
    written = BACKENDS[parts.scheme]
    if parts.scheme == "file":
        if parts.netloc not in ("", "~") or not parts.path.startswith("/"):
            raise InputError(
                "", f"{value!r} is not an absolute folder", f"write it as {written} or file://~/FOLDER"
            )
    elif not parts.netloc:
        raise InputError("", f"{value!r} names no bucket", f"write it as {written}")
    return value


def _secrets_provider(value: str) -> str:
    if value == "passphrase":
        raise InputError(
            "",
            "a passphrase protects secrets by default",
            "leave secrets_provider out, and set PULUMI_CONFIG_PASSPHRASE",
        )
    parts = _address(value, SECRETS_PROVIDERS)
    if not (parts.netloc + parts.path).strip("/"):
        raise InputError("", f"{value!r} names no key", f"write it as {SECRETS_PROVIDERS[parts.scheme]}")
    return value


class State(Model):
    """The engine's state of this stack, in a place shared by all who change the stack. Not with embedded."""

    backend: Annotated[str, Field(strict=True), AfterValidator(_backend)] = Field(
        description="Address of the engine's backend: s3://bucket/prefix?region=..., gs://, azblob:// or file:///folder."
    )
    secrets_provider: Annotated[str, Field(strict=True), AfterValidator(_secrets_provider)] | None = Field(
        default=None,
        description="Key that protects the secrets in it: awskms://alias/NAME?region=..., gcpkms://, "
        "azurekeyvault:// or hashivault://; PULUMI_CONFIG_PASSPHRASE of the run if left out.",
    )

    @model_validator(mode="before")
    @classmethod
    def _not_alone(cls, data: Any) -> Any:
        if isinstance(data, dict) and "secrets_provider" in data and "backend" not in data:
            raise InputError(
                "secrets_provider",
                "has no effect without a backend: the state is local",
                "add backend, or leave secrets_provider out",
            )
        return data


def check_state(cluster: str, state: State | None) -> None:
    """Refuse a shared state for the embedded cluster, which only this machine uses."""
    if state is not None and cluster == "embedded":
        raise InputError(
            "state",
            "the embedded cluster exists on this machine only, so its state cannot be shared",
            "leave state out, or declare a cluster that others can reach",
        )
