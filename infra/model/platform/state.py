"""Where the engine keeps a stack's state, and which key protects the secrets in it."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import AfterValidator, model_validator

from infra.model.aws.values import REGIONS, region_remedy
from infra.model.base.errors import InputError
from infra.model.base.fields import Model, Strict, listing, option, required

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
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_BUCKETS = {
    # S3 user guide, "Bucket naming rules"
    "s3": re.compile(
        rf"(?=.{{3,63}}$)(?!xn--|sthree-|amzn-s3-demo-)(?!(?:\d+\.){{3}}\d+$){_LABEL}(?:\.{_LABEL})*"
    ),
    # Cloud Storage, "Bucket names"
    "gs": re.compile(r"(?=.{3,222}$)(?!goog)(?!(?:\d+\.){3}\d+$)[a-z0-9](?:[a-z0-9_-]|\.(?!\.))*[a-z0-9]"),
    # Blob storage, "Naming and referencing containers"
    "azblob": re.compile(r"(?=.{3,63}$)[a-z0-9](?:[a-z0-9]|-(?!-))*[a-z0-9]|\$root|\$web"),
}
_SWITCH = "1|t|T|TRUE|true|True|0|f|F|FALSE|false|False"
_TEXT = ".+"
_AWS = {
    **dict.fromkeys(("hostname_immutable", "dualstack", "fips", "anonymous"), _SWITCH),
    **dict.fromkeys(("region", "profile"), _TEXT),
    **dict.fromkeys(
        ("request_checksum_calculation", "response_checksum_validation"), "when_supported|when_required"
    ),
    "endpoint": r"(?:https?://)?[^/\s]+/?",
    "rate_limiter_capacity": r"\d{1,9}",
    "role": "arn:.+",
    "awssdk": "v[12]",
}
_QUERIES: dict[str, dict[str, str]] = {
    "s3": {
        **_AWS,
        **dict.fromkeys(("accelerate", "use_path_style", "s3ForcePathStyle", "disable_https"), _SWITCH),
        "ssetype": "AES256|aws:kms|aws:kms:dsse",
        "kmskeyid": _TEXT,
    },
    "gs": {
        "anonymous": _SWITCH,
        **dict.fromkeys(("access_id", "private_key_path", "universe_domain"), _TEXT),
    },
    "azblob": {
        "storage_account": "[a-z0-9]{3,24}",
        "domain": _TEXT,
        "protocol": "https?",
        **dict.fromkeys(("cdn", "localemu"), _SWITCH),
    },
    "file": {
        **dict.fromkeys(("create_dir", "no_tmp_dir"), _TEXT),
        "metadata": "skip",
        "dir_file_mode": "[0-7]{1,4}",
    },
    "awskms": {**_AWS, "context_.+": _TEXT},
    "gcpkms": {"additional_authenticated_data": _TEXT},
    "azurekeyvault": {"algorithm": "RSA-OAEP(-256)?|RSA1_5"},
    "hashivault": {"engine": _TEXT},
}
"""Names of each scheme's parameters and their values, as patterns: gocloud.dev 0.46, which refuses all others
(aws/aws.go, blob/*blob, secrets/*)."""
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_AWS_KEY = rf"alias/(?!aws/)[\w/-]{{1,250}}|(?:key/)?(?:{_UUID}|mrk-[0-9a-f]{{32}})"
_GCP = r"[\w.:-]+"
_KEYS = {
    # AWS KMS developer guide, "Key identifiers"; keys of AWS's own (alias/aws/) encrypt for AWS only
    "awskms": re.compile(rf"(?:arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{{12}}:)?(?:{_AWS_KEY})", re.ASCII),
    "gcpkms": re.compile(
        rf"projects/{_GCP}/locations/{_GCP}/keyRings/{_GCP}/cryptoKeys/{_GCP}(?:/cryptoKeyVersions/\d+)?",
        re.ASCII,
    ),
    "azurekeyvault": re.compile(
        r"[A-Za-z0-9-]{3,24}\.(?:vault|managedhsm)\.[a-z.]+/keys/[A-Za-z0-9-]+(?:/[0-9a-f]{32})?", re.ASCII
    ),
    "hashivault": re.compile(r"[\w.-]+", re.ASCII),
}


def _address(value: str, known: dict[str, str]) -> SplitResult:
    try:
        parts = urlsplit(value)
    except ValueError:
        fact = f"{value!r} is not an address"
        raise InputError("", fact, f"write it as {next(iter(known.values()))}") from None
    if not parts.scheme or "://" not in value:
        raise InputError("", f"{value!r} has no scheme", f"write it as {next(iter(known.values()))}")
    if parts.scheme not in known:
        raise InputError("", f"unknown scheme {parts.scheme!r}", listing(known, parts.scheme))
    if parts.username is not None or parts.password is not None:
        fact = "carries a user or a password"
        raise InputError("", fact, "take it out: credentials come from the environment of the run")
    if parts.fragment or re.search(r"[\x00-\x20\x7f]", value) or ".." in parts.path.split("/"):
        fact = f"{value!r} is not a plain address"
        raise InputError("", fact, "write it without blanks, .. and #")
    query = parse_qs(parts.query, keep_blank_values=True)
    region = query.get("region", [])
    if parts.scheme in ("s3", "awskms") and any(name not in REGIONS for name in region):
        raise InputError("", f"unknown region {region[0]!r}", region_remedy(region[0]))
    for name, values in query.items():
        _check_parameter(parts.scheme, name, values)
    return parts


def _check_parameter(scheme: str, name: str, values: list[str]) -> None:
    known = _QUERIES[scheme]
    pattern = next((pattern for key, pattern in known.items() if re.fullmatch(key, name)), None)
    if pattern is None:
        raise InputError("", f"unknown parameter {name!r} of {scheme}", listing(known, name))
    if len(values) > 1:
        raise InputError("", f"{name} is given twice", "give it once")
    if not re.fullmatch(pattern, values[0], re.ASCII):
        raise InputError("", f"{values[0]!r} is not a value of {name}", "correct it, or leave it out")


def _backend(value: str) -> str:
    parts = _address(value, BACKENDS)
    example = BACKENDS[parts.scheme]
    if parts.scheme == "file":
        if parts.netloc not in ("", "~") or not parts.path.startswith("/"):
            fact = f"{value!r} is not an absolute folder"
            raise InputError("", fact, f"write it as {example} or file://~/FOLDER")
        if not parts.path.strip("/"):
            raise InputError("", f"{value!r} names no folder", f"write it as {example}")
    elif not _BUCKETS[parts.scheme].fullmatch(parts.netloc):
        fact = (
            f"{value!r} names no bucket"
            if not parts.netloc
            else f"{parts.netloc!r} is not a name that {parts.scheme} has"
        )
        raise InputError("", fact, f"write it as {example}")
    return value


def _secrets_provider(value: str) -> str:
    if value == "passphrase":
        fact = "a passphrase protects secrets by default"
        raise InputError("", fact, "leave secrets_provider out, and set PULUMI_CONFIG_PASSPHRASE")
    parts = _address(value, SECRETS_PROVIDERS)
    if not _KEYS[parts.scheme].fullmatch((parts.netloc + parts.path).lstrip("/")):
        raise InputError("", f"{value!r} names no key", f"write it as {SECRETS_PROVIDERS[parts.scheme]}")
    if ":" in parts.netloc:
        fact = f"{parts.netloc.partition(':')[0]!r} is read as a host with a port"
        raise InputError("", fact, f"write it with three slashes: {parts.scheme}:///...")
    arn = parts.path.lstrip("/").split(":") if parts.scheme == "awskms" else []
    region = parse_qs(parts.query).get("region", [])
    if len(arn) > 3 and region and arn[3] != region[0]:
        raise InputError("", f"the key is in {arn[3]}, and region is {region[0]}", "leave region out")
    return value


class State(Model):
    """The engine's state of this stack, in a place shared by all who change the stack. Not with embedded."""

    backend: Annotated[Strict, AfterValidator(_backend)] = required(
        "Address of the engine's backend: s3://bucket/prefix?region=..., gs://, azblob:// or file:///folder."
    )
    secrets_provider: Annotated[Strict, AfterValidator(_secrets_provider)] | None = option(
        "Key that protects the secrets in it: awskms://alias/NAME?region=..., gcpkms://, azurekeyvault:// "
        "or hashivault://; PULUMI_CONFIG_PASSPHRASE of the run if left out."
    )

    @model_validator(mode="before")
    @classmethod
    def _check_backend_given(cls, data: Any) -> Any:
        if isinstance(data, dict) and "secrets_provider" in data and "backend" not in data:
            fact = "has no effect without a backend: the state is local"
            raise InputError("secrets_provider", fact, "add backend, or leave secrets_provider out")
        return data


def check_state(cluster: str, state: State | None) -> None:
    """Refuse a shared state for the embedded cluster, which only this machine uses."""
    if state is not None and cluster == "embedded":
        fact = "the embedded cluster exists on this machine only, so its state cannot be shared"
        raise InputError("state", fact, "leave state out, or declare a cluster that others can reach")
