"""Scaffold of a new stack: its file, made from an example; for AWS also the storage for its state.

The commands that create the storage are printed, never run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from gpuform.checkout.errors import InputError
from infra import strict_yaml
from infra.config import KEY, parse

_STACK = re.compile(r"^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?\Z")  # part of names at AWS, and of a script
_BUCKET = re.compile(r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")  # S3 user guide, bucket naming rules
_ALIAS = re.compile(r"^[A-Za-z0-9/_-]{1,249}\Z")  # KMS CreateAlias, without its prefix alias/
_REGION = re.compile(r"^[a-z]{2}(-[a-z]+)+-\d\Z")
_STATE = """
    # Where the engine keeps the state of this stack: a bucket, encrypted with a key. Every person and every
    # pipeline that changes the stack needs access. `gpuform init` prints the commands that create both.
    state:
      backend: {backend}
      secrets_provider: {key} # protects the secrets in it
"""

EXAMPLES = ("aws-dev", "aws-prod", "local", "onprem-dev", "openstack-dev")
_WORKLOADS = re.compile(r"^    workloads:\n(?:(?:      .*)?\n)*", re.MULTILINE)
_NETWORK = re.compile(r"^      network:\n(?:        .*\n)+", re.MULTILINE)
Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StateLocation:
    """Location of one stack's state. Raises InputError for names that AWS rejects.

    A folder of its own in the bucket, so that a pipeline can access only its own stack's state.
    """

    stack: str
    region: str
    bucket: str
    alias: str

    def __post_init__(self) -> None:
        if not _STACK.match(self.stack):
            remedy = "use at most 50 of a-z, 0-9 and -, beginning and ending with a letter or a digit"
            raise InputError("STACK", f"{self.stack!r} is not a valid name for a stack on AWS", remedy)
        if not _BUCKET.match(self.bucket) or ".." in self.bucket:
            remedy = "use 3 to 63 of a-z, 0-9, - and ., beginning and ending with a letter or a digit"
            raise InputError("--bucket", f"{self.bucket!r} is not a valid S3 bucket name", remedy)
        if not _ALIAS.match(self.alias) or self.alias.startswith("aws/"):
            remedy = "use letters, digits, /, _ and -, not beginning with aws/"
            raise InputError("--kms", f"{self.alias!r} is not a valid KMS alias", remedy)

    @property
    def backend(self) -> str:
        return f"s3://{self.bucket}/{self.stack}?region={self.region}"

    @property
    def secrets_provider(self) -> str:
        return f"awskms://alias/{self.alias}?region={self.region}"


def read_policy(place: StateLocation) -> Document:
    """IAM policy for `preview` and `drift`: neither takes a lock or writes."""
    return _policy(place, ["s3:GetObject"], ["kms:Decrypt"])


def write_policy(place: StateLocation) -> Document:
    """IAM policy for `up`: the state and its locks are objects, encrypted with the key."""
    objects = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    return _policy(place, objects, ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"])


def _policy(place: StateLocation, objects: list[str], key: list[str]) -> Document:
    within = {"StringLike": {"s3:prefix": f"{place.stack}/*"}}
    statements = [
        _statement("List", "s3:ListBucket", _ARN, Condition=within),
        _statement("Objects", objects, f"{_ARN}/{place.stack}/*"),
        _statement("Key", key, "$key"),
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(sid: str, action: str | list[str], resource: str, **more: Document) -> Document:
    return {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": resource, **more}


_ARN = "arn:$partition:s3:::$bucket"
_SETTINGS: Mapping[str, Mapping[str, Document]] = yaml.safe_load("""
public-access-block:
  public-access-block-configuration:
    {BlockPublicAcls: true, IgnorePublicAcls: true, BlockPublicPolicy: true, RestrictPublicBuckets: true}
bucket-ownership-controls: {ownership-controls: {Rules: [{ObjectOwnership: BucketOwnerEnforced}]}}
bucket-versioning: {versioning-configuration: {Status: Enabled}}
bucket-encryption:
  server-side-encryption-configuration:
    Rules:
      - ApplyServerSideEncryptionByDefault: {SSEAlgorithm: "aws:kms", KMSMasterKeyID: $key}
        BucketKeyEnabled: true
bucket-lifecycle-configuration:
  lifecycle-configuration:
    Rules:
      - ID: old-versions
        Status: Enabled
        Filter: {Prefix: ""}
        NoncurrentVersionExpiration: {NoncurrentDays: 365} # a year, to see how an incident began
        AbortIncompleteMultipartUpload: {DaysAfterInitiation: 7}
bucket-policy:
  policy:
    Version: "2012-10-17"
    Statement:
      - Sid: TransportIsEncrypted
        Effect: Deny
        Principal: "*"
        Action: "s3:*"
        Resource: ["arn:$partition:s3:::$bucket", "arn:$partition:s3:::$bucket/*"]
        Condition: {Bool: {"aws:SecureTransport": "false"}}
""")
"""What is put on the bucket: by call, the option and its document; ``$`` is a variable of the script."""


def example_name(stack: str) -> str:
    """Name of the example for a stack of this name: for production the one that survives a zone failure."""
    return "aws-prod" if re.search(r"prod|live", stack) else "aws-dev"


def copy_example(stack: str, text: str) -> str:
    """The example's ``text`` as ``stack``'s own file, without its workloads. Raises InputError."""
    name = re.compile(r"^(    name: )\S+", re.MULTILINE)
    return _checked(stack, _WORKLOADS.sub("", name.sub(rf"\g<1>{stack}", text, count=1)))


def _checked(stack: str, text: str) -> str:
    parse(strict_yaml.parse(text, f"Pulumi.{stack}.yaml")["config"][KEY], f"Pulumi.{stack}.yaml")
    return text


def render_stack_file(
    stack: str,
    text: str,
    place: StateLocation,
    vpc: str = "",
    subnets: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """As ``copy_example``, with the region and the state of ``place``, in an existing VPC if one is named.

    ``subnets`` are ids by zone. Raises InputError for an invalid name, address or id.
    """
    if not _REGION.match(place.region):
        raise InputError("--region", f"{place.region!r} is not an AWS region", "write it as eu-central-1")
    old_region = region_of(text)
    text = copy_example(stack, text)
    if place.region != old_region:
        text = re.sub(rf"^(      region: ){old_region}.*$", rf"\g<1>{place.region}", text, flags=re.MULTILINE)
        text = re.sub(rf"\b{old_region}([a-z])\b", rf"{place.region}\1", text)
    if vpc:
        ids = ", ".join(f"{zone}: {subnet}" for zone, subnet in subnets.items())
        text = _NETWORK.sub(f"      network: {{vpc: {vpc}, subnets: {{{ids}}}}}\n", text)
    written = text.rstrip("\n") + "\n" + _STATE.format(backend=place.backend, key=place.secrets_provider)
    return _checked(stack, written)


def region_of(text: str) -> str:
    return str(strict_yaml.parse(text, "example")["config"][KEY]["cluster"]["region"])


def render_script(place: StateLocation) -> str:
    """A bash script for a user who may create buckets, keys and policies; running it twice is safe."""
    create_option = (
        "" if place.region == "us-east-1" else ' --create-bucket-configuration LocationConstraint="$region"'
    )
    puts = [
        f'aws s3api put-{call} --bucket "$bucket" --expected-bucket-owner "$account" \\\n'
        f"  --{option} {_shell_json(content)}"
        for call, options in _SETTINGS.items()
        for option, content in options.items()
    ]
    policies = [
        _POLICY.format(name=f"gpuform-{place.stack}-{name}", who=user, document=_shell_json(content))
        for name, user, content in (
            ("state-read", "`gpuform preview` and `gpuform drift`", read_policy(place)),
            ("state", "`up`, on merge", write_policy(place)),
        )
    ]
    head = _HEAD.format(place=place, where=create_option)
    return "\n".join([head, *puts, *policies, _ROLES.format(place=place), _FOOT.format(place=place)])


def _shell_json(content: Document) -> str:
    """JSON in double quotes for the shell, so that variables are expanded."""
    text = json.dumps(content)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_HEAD = """\
#!/usr/bin/env bash
# What the state of stack {place.stack} needs at AWS: a private bucket with versions, a key, two policies.
# Read it, then run it once with the permissions to create them; existing ones are kept or set again.
set -euo pipefail
export AWS_PAGER=
region={place.region}
bucket={place.bucket}
alias=alias/{place.alias}
account=$(aws sts get-caller-identity --query Account --output text)
partition=$(aws sts get-caller-identity --query Arn --output text | cut -d: -f2)

# The key encrypts the bucket's objects, and, once more, the secrets inside the state.
key=$(aws kms describe-key --region "$region" --key-id "$alias" \\
  --query KeyMetadata.Arn --output text 2>/dev/null || true)
if [ -z "$key" ]; then
  key=$(aws kms create-key --region "$region" --description "gpuform: state of {place.stack}" \\
    --query KeyMetadata.Arn --output text)
  aws kms create-alias --region "$region" --alias-name "$alias" --target-key-id "$key"
fi
aws kms enable-key-rotation --region "$region" --key-id "$key"

# A bucket's name is unique in the world: the owner is checked, so that no other account's bucket is changed.
if ! aws s3api head-bucket --bucket "$bucket" --expected-bucket-owner "$account" >/dev/null 2>&1; then
  aws s3api create-bucket --bucket "$bucket" --region "$region"{where}
fi"""

_POLICY = """
# For the role of {who}; attach it to that role.
if ! aws iam get-policy --policy-arn "arn:$partition:iam::$account:policy/{name}" >/dev/null 2>&1; then
  aws iam create-policy --policy-name {name} \\
    --policy-document {document}
fi"""

_ROLES = """
# With the folder of `gpuform render {place.stack} -o FOLDER` as argument: the policies of the roles that
# preview and update the stack, from its role-*.json. After a change of the stack, render and run this again.
for file in "${{1:-.}}"/role-*.json; do
  [ -e "$file" ] || continue
  name=gpuform-{place.stack}-$(basename "${{file#*role-}}" .json)
  arn=arn:$partition:iam::$account:policy/$name
  if ! aws iam get-policy --policy-arn "$arn" >/dev/null 2>&1; then
    aws iam create-policy --policy-name "$name" --policy-document "file://$file"
    continue
  fi
  # IAM keeps five versions of a policy.
  for old in $(aws iam list-policy-versions --policy-arn "$arn" \\
    --query 'Versions[?!IsDefaultVersion].VersionId | [3:]' --output text); do
    aws iam delete-policy-version --policy-arn "$arn" --version-id "$old"
  done
  aws iam create-policy-version --policy-arn "$arn" --policy-document "file://$file" --set-as-default
done"""

_FOOT = """
echo "state.backend: {place.backend}"
echo "state.secrets_provider: {place.secrets_provider}"
"""
