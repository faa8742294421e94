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
from lab.offline.aws.aws import eks_stand_in
from lab.offline.aws.row import ACCOUNT, ResourceRow

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


def generated_name(row: ResourceRow, urn: str, name: str, inputs: Mapping[str, Any]) -> str:
    """The name that the provider generates if the program sets none: the resource's, and seven digits."""
    prefix = inputs.get("namePrefix") or inputs.get(f"{row.name_input}Prefix") or f"{name}-"
    if row.call == "kms.CreateAlias":
        prefix = f"alias/{prefix}"
    return f"{prefix}{_digest(row, urn, inputs)[:7]}"


def all_tags(settings: Settings, inputs: Mapping[str, Any]) -> Any:
    """The provider's default tags, overridden by the resource's; unknown if the resource's are as a whole."""
    own_tags = reveal(inputs.get("tags")) or {}
    return own_tags if own_tags is UNKNOWN else {**(settings.default_tags or {}), **own_tags}


def computed_outputs(
    row: ResourceRow, settings: Settings, urn: str, inputs: Mapping[str, Any], existing_id: str = ""
) -> tuple[str, dict[str, Any]]:
    """Id and every output of a resource; its inputs must be known.

    ``existing_id`` is the id of an existing resource; it is kept if AWS chooses the ids of this type.
    """
    plain = reveal(inputs)
    facts = _template_values(row, settings, urn, plain)
    prefix = row.id.partition("{")[0]
    is_chosen_by_aws = existing_id.startswith(prefix) if prefix.endswith("-") else row.id == "{uuid}"
    id = existing_id if existing_id and is_chosen_by_aws else str(row.id).format_map(facts)
    facts["id"] = id
    outputs = _merge(_fill(row.outputs, facts), inputs)
    return id, {**outputs, **_common_outputs(row, settings, inputs)}


def planned_outputs(row: ResourceRow, settings: Settings, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs in a preview: values that AWS decides are unknown."""
    outputs = _merge(_unknown_outputs(row.outputs, inputs), inputs)
    return {**outputs, **_common_outputs(row, settings, inputs)}


def _common_outputs(row: ResourceRow, settings: Settings, inputs: Mapping[str, Any]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    if row.tagged:
        outputs["tagsAll"] = all_tags(settings, inputs)
    if row.regional:
        outputs["region"] = inputs.get("region") or settings.region
    return outputs


def _template_values(
    row: ResourceRow, settings: Settings, urn: str, inputs: dict[str, Any]
) -> dict[str, Any]:
    digest = _digest(row, urn, inputs)
    region = inputs.get("region") or settings.region
    partition = partitions()[region]
    number = int(digest, 16)
    cluster = eks_stand_in() if row.call == "eks.CreateCluster" else None
    authority = base64.b64encode(f"no certificate: offline {digest[:7]}".encode()).decode()
    return {
        "inputs": inputs,
        "name": inputs.get(row.name_input) or "",
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


def _digest(row: ResourceRow, urn: str, inputs: Mapping[str, Any]) -> str:
    """Contains the inputs that force a replacement, so that the replacement gets another digest."""
    forcing = {entry.removesuffix("-").split(".")[0] for entry in row.replaces} - {row.name_input}
    forcing_inputs = {key: repr(reveal(value)) for key, value in inputs.items() if key in forcing}
    return hashlib.sha256(f"{urn} {json.dumps(forcing_inputs, sort_keys=True)}".encode()).hexdigest()


def _unknown_outputs(template: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Unknown for each output that the program does not set; blocks member by member."""
    return {
        key: _unknown_outputs(item, inputs[key])
        if isinstance(item, Mapping) and isinstance(inputs.get(key), Mapping)
        else UNKNOWN
        for key, item in template.items()
    }


def _merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """``override`` over ``base``, blocks member by member."""
    result = dict(base)
    for key, value in override.items():
        old = base.get(key)
        are_mappings = isinstance(value, Mapping) and isinstance(old, Mapping)
        result[key] = _merge(old, value) if are_mappings else value  # type: ignore[arg-type]
    return {key: value for key, value in result.items() if value is not None}


def _fill(template: Any, facts: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {key: _fill(item, facts) for key, item in template.items()}
    if isinstance(template, list):
        return [_fill(item, facts) for item in template]
    return template.format_map(facts) if isinstance(template, str) else template


def _uuid(digest: str) -> str:
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _address(number: int) -> str:
    """An address of TEST-NET-2 (RFC 5737), which no host has."""
    return f"198.51.100.{number % 254 + 1}"
