"""The functions of the provider that can be answered without an account."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Properties
from gpuform.provider.properties import Secret, reveal
from lab.offline.aws.outputs import Settings, partitions
from lab.offline.aws.row import ACCOUNT

# Public parameters of AWS about one dated image release; their value follows from their name.
_AL2023 = re.compile(r".*/amazon-eks-node-al2023-\S+-(?P<kubernetes>1\.\d+)-v(?P<date>\d{8})/release_version")
_BOTTLEROCKET = re.compile(r"/aws/service/bottlerocket/\S+/(?P<version>\d+\.\d+\.\d+)/image_version")


def answer(token: str, args: Properties, settings: Settings) -> Properties:
    """The function's result. Raises `OperationError`, listing the known functions, for any other."""
    if token not in _FUNCTIONS:
        known = ", ".join(sorted(name.rsplit(":", 1)[-1] for name in _FUNCTIONS))
        raise OperationError(f"{token}: the offline stand-in of the aws provider answers {known} only")
    plain = reveal(args)
    region = plain.get("region") or settings.region
    if region not in partitions():
        raise OperationError(f"{token}: {region!r} is not an AWS region; set aws:region")
    return _FUNCTIONS[token](plain, region)


def _identity(args: Properties, region: str) -> Properties:
    arn = f"arn:{partitions()[region]['name']}:iam::{ACCOUNT}:user/offline"
    return {"id": ACCOUNT, "accountId": ACCOUNT, "arn": arn, "userId": "AIDAOFFLINE"}


def _partition(args: Properties, region: str) -> Properties:
    name, suffix = partitions()[region]["name"], partitions()[region]["dnsSuffix"]
    reverse = ".".join(reversed(suffix.split(".")))
    suffixes = {"dnsSuffix": suffix, "reverseDnsPrefix": reverse}
    return {"id": name, "partition": name, **suffixes, "region": region}


def _region(args: Properties, region: str) -> Properties:
    endpoint = f"ec2.{region}.{partitions()[region]['dnsSuffix']}"
    return {"id": region, "name": region, "region": region, "endpoint": endpoint, "description": region}


def _parameter(args: Properties, region: str) -> Properties:
    name = str(args.get("name") or "")
    value = _release(name)
    if not value:
        raise OperationError(
            f"{name}: offline runs have only the release_version of a dated EKS image for AL2023 and the "
            "image_version of a Bottlerocket release; declare the value itself"
        )
    arn = f"arn:{partitions()[region]['name']}:ssm:{region}::parameter{name}"
    common = {"id": name, "name": name, "arn": arn, "type": "String", "version": 1, "region": region}
    return {**common, "value": Secret(value), "insecureValue": value}


def _release(name: str) -> str:
    """The value of a parameter; AWS's patch release and commit are unknown offline, these are constants."""
    if match := _AL2023.fullmatch(name):
        return f"{match['kubernetes']}.0-{match['date']}"
    if match := _BOTTLEROCKET.fullmatch(name):
        return f"{match['version']}-00000000"
    return ""


def assumed_subnet(vpc: str, zone: str, tags: Mapping[str, str]) -> str:
    """Id of the subnet that offline runs assume for these tags in a zone; always the same."""
    text = json.dumps([vpc, zone, sorted(tags.items())])
    return f"subnet-{hashlib.sha256(text.encode()).hexdigest()[:17]}"


def _subnets(args: Properties, region: str) -> Properties:
    """Which subnets exist is unknown offline: one for each question, as an update requires."""
    filters = {str(item["name"]): str(item["values"][0]) for item in args.get("filters") or ()}
    tags = {key.removeprefix("tag:"): value for key, value in filters.items() if key.startswith("tag:")}
    subnet = assumed_subnet(filters.get("vpc-id", ""), filters.get("availability-zone", ""), tags)
    return {"id": region, "region": region, "filters": args.get("filters"), "ids": [subnet]}


_FUNCTIONS: Mapping[str, Callable[[Properties, str], dict[str, Any]]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": _identity,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:ec2/getSubnets:getSubnets": _subnets,
    "aws:ssm/getParameter:getParameter": _parameter,
}
