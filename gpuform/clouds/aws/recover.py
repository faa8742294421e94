"""Checks at AWS whether a resource that a killed run was creating exists; read-only."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure
from gpuform.clients.aws import api
from gpuform.clouds.aws.lookups import LOOKUPS, OUR_TAGS, Call, Lookup
from gpuform.engine.pending import Operation
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import Recovery, Step, ambiguous
from infra.model.base import labels

_ARN_ACCOUNT = re.compile(r"arn:[\w-]+:[\w-]+:[\w-]*:(\d{12}):")


@dataclass(frozen=True)
class _Target:
    """The resource to look for: its inputs, its region, and every tag that it would have."""

    operation: Operation
    inputs: Mapping[str, Any]
    region: str
    tags: Mapping[str, str]

    def fill(self, value: Any, **more_values: Any) -> Any:
        """The parameters of a call; KeyError for an input that the program does not give."""
        if isinstance(value, Mapping):
            return {key: self.fill(item, **more_values) for key, item in value.items()}
        if value == OUR_TAGS:  # as the tagging API takes them
            return [{"Key": key, "Values": [value]} for key, value in self.tags.items()]
        if isinstance(value, list):
            tags = [{"Name": f"tag:{key}", "Values": [value]} for key, value in self.tags.items()]
            items = [self.fill(item, **more_values) for item in value if item != OUR_TAGS]
            return items + tags if OUR_TAGS in value else items
        return value.format_map({"inputs": self.inputs, **more_values}) if isinstance(value, str) else value


class AwsRecovery(Recovery):
    """Resources are found by their tags or names, as `LOOKUPS` says."""

    name: ClassVar[str] = "AWS"
    prefix: ClassVar[str] = "aws:"

    def require_account(self, stack: str, state: Mapping[str, Any]) -> None:
        accounts = {
            match[1]
            for resource in states.resources(state)
            if resource["type"].startswith(self.prefix)
            for match in [_ARN_ACCOUNT.match(str((resource.get("outputs") or {}).get("arn") or ""))]
            if match
        }
        with api.translate_errors("aws sts get-caller-identity"):
            account = str(api.create_client("sts", _region(state)).get_caller_identity()["Account"])
        if accounts and account not in accounts:
            raise Failure(
                f"stack {stack}",
                f"is in account {', '.join(sorted(accounts))}, but the credentials are for account {account}",
                "set AWS_PROFILE, or log in to the stack's own account",
            )

    def lookup(self, operation: Operation, state: Mapping[str, Any]) -> Step:
        """Errors are also those of `gpuform.clients.aws.api.translate_errors`."""
        lookup = LOOKUPS.get(operation.type)
        if lookup is None:
            return Step.manual(operation, "resources of this type cannot be found by tag or name")
        target = _target(operation, state)
        if not target.region:
            return Step.manual(operation, "the state does not say in which region it would be")
        if target.tags.get(labels.ENVIRONMENT) is None and _is_tagged(lookup):
            return Step.manual(operation, f"it would not have the tag {labels.ENVIRONMENT}")
        try:
            ids, foreign = _candidates(lookup, target, states.ids_of_type(state, operation.type))
        except KeyError as missing:
            return Step.manual(operation, f"its inputs have no {missing.args[0]}")
        if len(ids) > 1:
            raise ambiguous(operation, ids)
        if ids:
            why = "it exists, and has our tags" if _is_tagged(lookup) else "it exists"
            return Step.of(operation, "import", why, ids[0])
        if foreign:
            why = f"{foreign[0]} exists but does not have our tags, so it is not ours"
            return Step.manual(operation, why)
        return Step.of(operation, "clear", "AWS does not have it")


def _region(state: Mapping[str, Any]) -> str:
    """Any region of the stack: the account is the same in each."""
    resources = states.resources(state)
    providers = [resource for resource in resources if resource["type"] == "pulumi:providers:aws"]
    regions = [states.reveal_secrets(provider.get("inputs") or {}).get("region") for provider in providers]
    return str(next(filter(None, regions), "us-east-1"))


def _target(operation: Operation, state: Mapping[str, Any]) -> _Target:
    inputs = states.reveal_secrets(operation.resource.get("inputs") or {})
    provider = states.provider_inputs(state, operation.resource)
    defaults = provider.get("defaultTags") or {}
    defaults = json.loads(defaults) if isinstance(defaults, str) else defaults
    tags = inputs.get("tags") or {}
    region = str(inputs.get("region") or provider.get("region") or "")
    return _Target(operation, inputs, region, {**(defaults.get("tags") or {}), **tags})


def _is_tagged(lookup: Lookup) -> bool:
    return bool(lookup.tags) or _filters_by_tags(lookup)


def _filters_by_tags(lookup: Lookup) -> bool:
    values = lookup.call.parameters.values()
    return any(value == OUR_TAGS or (isinstance(value, list) and OUR_TAGS in value) for value in values)


def _candidates(lookup: Lookup, target: _Target, known: Collection[str]) -> tuple[list[str], list[str]]:
    """Import ids of matching resources, and names of resources that have its name but are not ours."""
    own: list[str] = []
    foreign: list[str] = []
    for item in _list_items(lookup, target):
        if any(str(_search(path, item)) != target.fill(text) for path, text in lookup.match.items()):
            continue
        name = _search(lookup.key, item)
        if not name:
            continue
        name = str(name).rpartition(lookup.separator)[2] if lookup.separator else str(name)
        id = target.fill(lookup.id, key=name)
        if {id, name} & set(known):
            continue
        is_own = _is_own(lookup, target, item, name)
        if is_own is not None:
            (own if is_own else foreign).append(id)
    return own, foreign


def _list_items(lookup: Lookup, target: _Target) -> list[Any]:
    try:
        response = _request(lookup.call, target.region, target.fill(lookup.call.parameters))
    except api.AwsError as error:
        if error.code in lookup.missing:
            return []
        raise
    items = _search(lookup.items, response)
    return items if isinstance(items, list) else [items] if items else []


def _is_own(lookup: Lookup, target: _Target, item: Any, name: str) -> bool | None:
    """Whether the candidate has our tags; None if it is being deleted, or does not match the tag filter."""
    answer = item
    if lookup.details:
        parameters = target.fill(lookup.details.parameters, key=name, item=item)
        answer = _request(lookup.details, target.region, parameters)
    if lookup.alive and not _search(lookup.alive, answer):
        return None
    if not lookup.tags:
        return True
    tags = _flatten_tags(_search(lookup.tags, answer))
    is_own = all(tags.get(key) == value for key, value in target.tags.items())
    return is_own if is_own or not _filters_by_tags(lookup) else None


def _search(path: str, value: Any) -> Any:
    """Evaluates a JMESPath; jmespath comes with botocore, which only AWS stacks need."""
    import jmespath  # type: ignore[import-untyped]

    return jmespath.search(path, value)


def _flatten_tags(tags: Any) -> dict[str, str]:
    """Tags as AWS's services return them: a map, or a list of pairs."""
    if isinstance(tags, Sequence):
        return {str(tag["Key"]): str(tag["Value"]) for tag in tags}
    return {str(key): str(value) for key, value in (tags or {}).items()}


def _request(call: Call, region: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    service, operation = call.name.split(".")
    with api.translate_errors(f"aws {service} {operation.replace('_', '-')}"):
        client = api.create_client(service, region)
        if client.can_paginate(operation):
            response = client.get_paginator(operation).paginate(**parameters).build_full_result()
        else:
            response = getattr(client, operation)(**parameters)
    result: dict[str, Any] = response
    return result
