"""Types of AWS's values (regions, ids, ARNs, tags), each validated on its own."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from infra.facts import EKS_VERSIONS
from infra.model.base.errors import InputError
from infra.model.base.fields import NUMBER, Strict, each_once, matching, one_of, refusing

PARTITIONS: Mapping[str, tuple[str, ...]] = {
    "aws": (
        *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3"),
        *("ap-south-1", "ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3"),
        *("ap-southeast-4", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7"),
        *("ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2", "eu-north-1"),
        *("eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1"),
        *("me-central-1", "me-south-1", "mx-central-1", "sa-east-1"),
        *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
    ),
    "aws-cn": ("cn-north-1", "cn-northwest-1"),
    "aws-us-gov": ("us-gov-east-1", "us-gov-west-1"),
    "aws-iso": ("us-iso-east-1", "us-iso-west-1"),
    "aws-iso-b": ("us-isob-east-1", "us-isob-west-1"),
    "aws-iso-e": ("eu-isoe-west-1",),
    "aws-iso-f": ("us-isof-east-1", "us-isof-south-1"),
    "aws-eusc": ("eusc-de-east-1",),
}
"""Regions that have EKS, by partition (botocore, data/endpoints.json; a test compares)."""
REGIONS = tuple(region for regions in PARTITIONS.values() for region in regions)

ADD_ON = re.compile(rf"v{NUMBER}\.{NUMBER}\.{NUMBER}-eksbuild\.[1-9][0-9]{{0,3}}")
_PRINCIPAL = re.compile(r"arn:(aws[a-z-]*):iam::(\d{12}):(role|user)((?:/[\w+=,.@-]+)+)", re.ASCII)
_LONGEST_PRINCIPAL, _LONGEST_PATH = 64, 512
"""IAM user guide, "IAM and AWS STS quotas": names of roles and users, and their paths."""
_SERVICE_ROLE_PATH = "/aws-service-role/"

MAX_TAGS = 40
"""A resource has at most 50 ("Tag naming limits and requirements"); EKS, Karpenter and gpuform add ten."""
_LONGEST_KEY, _LONGEST_VALUE = 128, 256
_TAG = re.compile(r"[\w .:/=+@-]*")
"""Same page: letters and digits of any script, blanks and these signs, in every service."""
_RESERVED_TAGS = ("aws:", "eks:")
_CONTROLLERS = re.compile(r"(.*\.)?(kubernetes\.io|karpenter\.sh|k8s\.aws|csi\.aws\.com|gpuform\.io)")
_NAME_TAG = "name"


def region_remedy(value: str) -> str:
    """The remedy for an unknown region; the list of all would hide the rest of a message."""
    close = difflib.get_close_matches(value, REGIONS, n=3, cutoff=0.6)
    return f"use {' or '.join(close)}" if close else "write it as eu-west-1"


def _region(value: str) -> str:
    if value not in REGIONS:
        raise InputError("", f"{value!r} is not a region with EKS", region_remedy(value))
    return value


def partition_of(region: str) -> str:
    return next(name for name, regions in PARTITIONS.items() if region in regions)


def _principal(value: str) -> str:
    match = _PRINCIPAL.fullmatch(value)
    if not match or match[1] not in PARTITIONS or not int(match[2]):
        fact = f"{value!r} is not an ARN of an IAM role or user"
        raise InputError("", fact, "write it as arn:aws:iam::111122223333:role/admin")
    if len(match[4].rpartition("/")[2]) > _LONGEST_PRINCIPAL:
        fact = f"the name of a {match[3]} in IAM has at most {_LONGEST_PRINCIPAL} characters"
        raise InputError("", fact, "write the ARN as `aws iam get-role` shows it")
    if len(match[4].rpartition("/")[0]) + 1 > _LONGEST_PATH:
        raise InputError("", f"a path in IAM has at most {_LONGEST_PATH} characters", "shorten it")
    if match[4].startswith(_SERVICE_ROLE_PATH):
        fact = "EKS refuses an access entry for a service-linked role"
        raise InputError("", fact, "name a role that people or a pipeline assume")
    return value


def partition_of_arn(arn: str) -> str:
    return arn.split(":")[1]


def _is_tag_text(value: str, longest: int) -> bool:
    return len(value) <= longest and bool(_TAG.fullmatch(value)) and value == value.strip()


def _tag_key(value: str) -> str:
    if not value:
        raise InputError("", "the key of a tag is empty", "write its key")
    if not _is_tag_text(value, _LONGEST_KEY):
        fact = f"{value!r} is not a key of a tag"
        raise InputError("", fact, f"use at most {_LONGEST_KEY} letters, digits, blanks and _.:/=+-@")
    return value


def _own_tag_key(value: str) -> str:
    """Controllers find what they made, and may delete, by tags of their domains."""
    key = value.lower()
    is_controllers = "/" in key and _CONTROLLERS.fullmatch(key.partition("/")[0])
    if not key or key.startswith(_RESERVED_TAGS) or key == _NAME_TAG or is_controllers:
        raise InputError("", f"tag {value!r} is set by gpuform or by AWS", "use a key of your own")
    return value


def _tags(value: dict[str, str]) -> dict[str, str]:
    if len(value) > MAX_TAGS:
        raise InputError("", f"has {len(value)} entries", f"give {MAX_TAGS} or fewer")
    keys: dict[str, str] = {}
    for key in value:
        if (first := keys.setdefault(key.lower(), key)) != key:
            raise InputError(key, f"IAM takes {first!r} and {key!r} for one key", "use one of them")
    return value


Region = Annotated[Strict, AfterValidator(_region)]
UNIQUE_ZONES = "name each zone once"
Zone = Annotated[
    Strict, matching(r"[a-z]{2,4}(-[a-z]+)+-\d[a-z]", "an availability zone", "write it as eu-west-1a")
]
EksVersion = Annotated[Strict, one_of("version", EKS_VERSIONS)]
AddOnVersion = Annotated[
    Strict,
    matching(
        ADD_ON.pattern, "a version of an add-on", "write the whole version, for example v1.21.1-eksbuild.1"
    ),
]
_Principal = Annotated[Strict, AfterValidator(_principal)]
# IAM's names ignore case (IAM user guide, "IAM identifiers").
Principals = Annotated[tuple[_Principal, ...], each_once("name each role or user once", key=str.lower)]
_Reservation = Annotated[
    Strict,
    matching(
        r"cr-([0-9a-f]{8}|[0-9a-f]{17})", "a capacity reservation", "write its id, cr-0123456789abcdef0"
    ),
]
Reservations = Annotated[tuple[_Reservation, ...], each_once("name each reservation once")]
VpcId = Annotated[
    Strict,
    matching(r"vpc-([0-9a-f]{8}|[0-9a-f]{17})", "the id of a VPC", "write it as vpc-0123456789abcdef0"),
]
SubnetId = Annotated[
    Strict,
    matching(
        r"subnet-([0-9a-f]{8}|[0-9a-f]{17})", "the id of a subnet", "write it as subnet-0123456789abcdef0"
    ),
]
TagKey = Annotated[Strict, AfterValidator(_tag_key)]
TagValue = Annotated[
    Strict,
    refusing(
        lambda value: not _is_tag_text(value, _LONGEST_VALUE),
        "{!r} is not a value of a tag",
        f"use at most {_LONGEST_VALUE} letters, digits, blanks and _.:/=+-@",
    ),
]
Tags = Annotated[dict[Annotated[TagKey, AfterValidator(_own_tag_key)], TagValue], AfterValidator(_tags)]
