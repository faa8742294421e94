"""Made-up answers of AWS: ids, ARNs and the like, the same for the same resource and inputs."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.loaders import Loader

from gpuform.provider.properties import UNKNOWN, reveal
from lab.offline.aws.cluster import handed_over
from lab.offline.aws.row import ACCOUNT, Row

_HEX = 17  # digits of an EC2 id after its prefix


@dataclass(frozen=True)
class Settings:
    """The part of the provider's configuration that affects outputs."""

    region: str = ""
    default_tags: Mapping[str, Any] | None = None


@functools.cache
def partitions() -> dict[str, dict[str, Any]]:
    """Partition of each region, from the file that botocore ships."""
    data = Loader().load_data("partitions")
    return {region: entry["outputs"] for entry in data["partitions"] for region in entry["regions"]}


def made_up_name(row: Row, urn: str, name: str, inputs: Mapping[str, Any]) -> str:
    """The name that the provider generates if the program sets none: the resource's, and seven digits."""
    prefix = inputs.get("namePrefix") or inputs.get(f"{row.named}Prefix") or f"{name}-"
    if row.call == "kms.CreateAlias":
        prefix = f"alias/{prefix}"
    return f"{prefix}{_digest(row, urn, inputs)[:7]}"


def all_tags(settings: Settings, inputs: Mapping[str, Any]) -> Any:
    """The provider's default tags, overridden by the resource's; unknown if the resource's are as a whole."""
    own = reveal(inputs.get("tags")) or {}
    return own if own is UNKNOWN else {**(settings.default_tags or {}), **own}


def computed(
    row: Row, settings: Settings, urn: str, inputs: Mapping[str, Any], found: str = ""
) -> tuple[str, dict[str, Any]]:
    """Id and every output of a resource; its inputs must be known.

    ``found`` is the id of an existing resource; it is kept if AWS chooses the ids of this type.
    """
    plain = reveal(inputs)
    facts = _facts(row, settings, urn, plain)
    prefix = row.id.partition("{")[0]
    chosen = found.startswith(prefix) if prefix.endswith("-") else row.id == "{uuid}"
    id = found if found and chosen else str(row.id).format_map(facts)
    facts["id"] = id
    outputs = _merged(_filled(row.outputs, facts), inputs)
    return id, {**outputs, **_always(row, settings, inputs)}


def planned(row: Row, settings: Settings, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs in a preview: values that AWS decides are unknown."""
    outputs = _merged(_unknown(row.outputs, inputs), inputs)
    return {**outputs, **_always(row, settings, inputs)}


def _always(row: Row, settings: Settings, inputs: Mapping[str, Any]) -> dict[str, Any]:
    always: dict[str, Any] = {}
    if row.tagged:
        always["tagsAll"] = all_tags(settings, inputs)
    if row.regional:
        always["region"] = inputs.get("region") or settings.region
    return always


def _facts(row: Row, settings: Settings, urn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    digest = _digest(row, urn, inputs)
    region = inputs.get("region") or settings.region
    partition = partitions()[region]
    number = int(digest, 16)
    cluster = handed_over() if row.call == "eks.CreateCluster" else None
    authority = base64.b64encode(f"no certificate: offline {digest[:7]}".encode()).decode()
    return {
        "inputs": inputs,
        "name": inputs.get(row.named) or "",
        "path": inputs.get("path") or "/",
        "account": ACCOUNT,
        "region": region,
        "partition": partition["name"],
        "suffix": partition["dnsSuffix"],
        "hex": digest[:_HEX],
        "HEX": digest[:32].upper(),
        "digits": number % 10**10,
        "uuid": _uuid(digest),
        "ip": _address(number),
        "endpoint": cluster.endpoint
        if cluster
        else f"https://{digest[:32].upper()}.gr7.{region}.eks.{partition['dnsSuffix']}",
        "certificate": cluster.certificate if cluster else authority,
    }


def _digest(row: Row, urn: str, inputs: Mapping[str, Any]) -> str:
    """Contains the inputs that force a replacement, so that the replacement gets another digest."""
    forcing = {entry.removesuffix("-").split(".")[0] for entry in row.replaces} - {row.named}
    decisive = {key: repr(reveal(value)) for key, value in inputs.items() if key in forcing}
    return hashlib.sha256(f"{urn} {json.dumps(decisive, sort_keys=True)}".encode()).hexdigest()


def _unknown(template: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Unknown for each output that the program does not set; blocks member by member."""
    return {
        key: _unknown(item, inputs[key])
        if isinstance(item, Mapping) and isinstance(inputs.get(key), Mapping)
        else UNKNOWN
        for key, item in template.items()
    }


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``, blocks member by member."""
    result = dict(below)
    for key, value in above.items():
        under = below.get(key)
        mixed = isinstance(value, Mapping) and isinstance(under, Mapping)
        result[key] = _merged(under, value) if mixed else value  # type: ignore[arg-type]
    return {key: value for key, value in result.items() if value is not None}


def _filled(template: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {key: _filled(item, facts) for key, item in template.items()}
    if isinstance(template, list):
        return [_filled(item, facts) for item in template]
    return template.format_map(facts) if isinstance(template, str) else template


def _uuid(digest: str) -> str:
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _address(number: int) -> str:
    """An address of TEST-NET-2 (RFC 5737), which no host has."""
    return f"198.51.100.{number % 254 + 1}"
