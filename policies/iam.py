"""Rules over IAM: the effective permissions of a policy and its principals, in any notation.

How AWS reads a policy: IAM User Guide, "IAM JSON policy elements" (Action, Resource, Condition, Principal).
Names of actions and keys ignore case; an ARN with fewer than six fields is completed by wildcards.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from policies.rule import Resource, Rule, as_list, get, items, mapping

_EVERY = "every resource"
_READING = ("describe", "get", "list", "batchget")
"""Most actions that read can be allowed on all resources only."""
_SECRETS = (
    *("secretsmanager:getsecretvalue", "secretsmanager:batchgetsecretvalue", "ssm:getparameter"),
    *("ssm:getparameters", "ssm:getparametersbypath", "ssm:getparameterhistory", "s3:getobject"),
    *("s3:getobjectversion", "dynamodb:getitem", "dynamodb:batchgetitem", "redshift:getclustercredentials"),
)
"""Those that read secrets or data."""
_LAUNCHING = re.compile(r"ec2:(runinstances|create(?!tags$)[a-z]+)")
"""What a launch creates and uses has no name beforehand: its statements name types."""
_TYPELESS = ("execute-api", "s3", "sns", "sqs")
"""Services with ARNs that have a name and no type (Service Authorization Reference)."""
_NAMELESS = re.compile(r"(?=.*[*?])[^/:*?]*[/:]?[*?/:-]+")
"""The last field of an ARN that names a type at most: ``*``, ``instance/*``, ``secret:*-??????``, ``i*``."""
_EC2_ID = re.compile(r"/[a-z]+-0?")
"""What all ids of a type begin with."""
_MANAGED = re.compile(r"arn:[\w-]+:iam::aws:policy/(.+)")
_BROAD = re.compile(
    r"AdministratorAccess.*|PowerUserAccess|ReadOnlyAccess|SecretsManagerReadWrite|.*FullAccess.*"
    r"|job-function/(?!Billing|ViewOnlyAccess).*"
)
"""Policies of AWS that name no resources (AWS Managed Policy Reference)."""
_LIFTED = re.compile(r"(?i)ifexists$|not|^forallvalues:|^null$")
"""Operators of conditions that also hold where the key is missing, or for any value but one."""
_ABOUT_RESOURCES = re.compile(r"(?i)(?!aws:(?!resourcetag/|requesttag/)|iam:passedtoservice$)")
"""Condition keys that say on what, not when or from where; iam:PassedToService says not which role."""
_ABOUT_PRINCIPALS = re.compile(
    r"(?i)(aws:(source(arn|account|owner|orgid|orgpaths|vpc|vpce)|principal(arn|account|orgid|orgpaths)|userid)"
    r"|kms:calleraccount|s3:dataaccesspoint(arn|account))$"
)
"""Condition keys by which AWS judges a policy not public (S3 User Guide, "The meaning of public")."""

Statement = Mapping[str, Any]


def _scoped(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    documents = [get(resource.props, "policy")]
    documents += [get(inline, "policy") for inline in items(resource.props, "inlinePolicies")]
    for document in documents:
        yield from _each_statement(document, _allowed)
    arns = [get(resource.props, "policyArn"), *items(resource.props, "policyArns")]
    for arn in (*arns, *items(resource.props, "managedPolicyArns")):
        managed = _MANAGED.fullmatch(str(arn))
        if managed and _BROAD.fullmatch(managed[1]):
            yield f"AWS's policy {managed[1]} is for every resource of an account"


def _principals_named(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    for key in ("policy", "assumeRolePolicy"):
        yield from _each_statement(get(resource.props, key), _principals)


def _each_statement(document: Any, check: Callable[[Statement], Iterator[str]]) -> Iterator[str]:
    """Judge what a document (JSON, or a mapping) allows."""
    try:
        document = json.loads(document) if isinstance(document, str) else document
    except ValueError:
        yield "policy is not JSON"
        return
    for statement in as_list(get(document, "Statement")):
        if statement.get("Effect") == "Allow":
            for fact in check(statement):
                yield f"statement {statement.get('Sid', 'without Sid')} {fact}"


def _allowed(statement: Statement) -> Iterator[str]:
    scope = _widest(statement)
    if not scope:
        return
    if "NotAction" in statement:
        yield f"allows every action but {', '.join(map(str, as_list(statement['NotAction'])))} on {scope}"
    bound = _bound(statement, _ABOUT_RESOURCES)
    for action in map(str, as_list(statement.get("Action"))):
        if _changes(action.lower(), scope, bound) or (_reads_secrets(action.lower()) and not bound):
            yield f"allows {action} on {scope}"


def _changes(action: str, scope: str, bound: bool) -> bool:
    if action.rpartition(":")[2].startswith(_READING):
        return False
    if scope == _EVERY:
        return "*" in action or not bound
    return not bound and not _LAUNCHING.fullmatch(action)


def _reads_secrets(action: str) -> bool:
    return any(fnmatch.fnmatchcase(secret, action.replace("[", "[[]")) for secret in _SECRETS)


def _widest(statement: Statement) -> str:
    """The widest of a statement's resources; empty if each has a name."""
    if "NotResource" in statement:
        return _EVERY
    widths = [_width(str(arn)) for arn in as_list(statement.get("Resource"))]
    return _EVERY if _EVERY in widths else max(widths, default="")


def _width(arn: str) -> str:
    """``every resource``, the ARN if it names a type at most, empty if it names a resource."""
    if not arn.startswith("arn:"):
        return _EVERY if "*" in arn else ""
    fields = [*arn.split(":", 5), *["*"] * 5]
    service, name = fields[2], fields[5]
    if not name.strip("*?/:-"):
        return _EVERY
    if service == "ec2":
        name = _EC2_ID.sub("/", name)
    return arn if service not in _TYPELESS and _NAMELESS.fullmatch(name) else ""


def _principals(statement: Statement) -> Iterator[str]:
    principal = statement.get("Principal")
    values = principal.values() if isinstance(principal, Mapping) else [principal]
    everyone = any("*" in as_list(value) for value in values)
    if "NotPrincipal" in statement or (everyone and not _bound(statement, _ABOUT_PRINCIPALS)):
        yield "lets in everyone"


def _bound(statement: Statement, about: re.Pattern[str]) -> bool:
    """Whether a condition holds only for named values of such a key."""
    return any(
        about.match(key) and all(str(value).strip("*?") for value in as_list(values))
        for operator, keys in mapping(statement, "Condition").items()
        if not _LIFTED.search(operator)
        for key, values in keys.items()
    )


RULES = (
    Rule(
        "iam-scoped",
        "No policy allows changing every resource, or reading every secret, or passing on any role.",
        "critical",
        "name the resources, or bind the action to a tag by a condition",
        (
            "aws:iam/policy:Policy",
            "aws:iam/rolePolicy:RolePolicy",
            "aws:iam/userPolicy:UserPolicy",
            "aws:iam/groupPolicy:GroupPolicy",
            "aws:iam/role:Role",
            "aws:iam/policyAttachment:PolicyAttachment",
            "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
            "aws:iam/userPolicyAttachment:UserPolicyAttachment",
            "aws:iam/groupPolicyAttachment:GroupPolicyAttachment",
            "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive",
        ),
        _scoped,
    ),
    Rule(
        "principals-named",
        "No policy lets everyone use a resource or assume a role.",
        "critical",
        "name the principals, or their organization or account by a condition",
        (
            "aws:iam/role:Role",
            "aws:kms/key:Key",
            "aws:s3/bucketPolicy:BucketPolicy",
            "aws:secretsmanager/secretPolicy:SecretPolicy",
            "aws:sns/topicPolicy:TopicPolicy",
            "aws:sqs/queuePolicy:QueuePolicy",
        ),
        _principals_named,
    ),
)
