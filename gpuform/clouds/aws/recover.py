"""Checks at AWS whether a resource that a killed run was creating exists; read-only."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure
from gpuform.clients.aws import api
from gpuform.clouds.aws.lookups import LOOKS, TAGS, Call, Look
from gpuform.engine.pending import Operation
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import Recovery, Step, ambiguous
from infra.model import labels

_ACCOUNT = re.compile(r"arn:[\w-]+:[\w-]+:[\w-]*:(\d{12}):")


@dataclass(frozen=True)
class _Wanted:
    """The resource to look for: its inputs, its region, and every tag that it would have."""

    operation: Operation
    inputs: Mapping[str, Any]
    region: str
    tags: Mapping[str, str]

    def filled(self, asked: Any, **more: Any) -> Any:
        """The parameters of a call; KeyError for an input that the program does not give."""
        if isinstance(asked, Mapping):
            return {key: self.filled(item, **more) for key, item in asked.items()}
        if asked == TAGS:  # as the tagging API takes them
            return [{"Key": key, "Values": [value]} for key, value in self.tags.items()]
        if isinstance(asked, list):
            tags = [{"Name": f"tag:{key}", "Values": [value]} for key, value in self.tags.items()]
            rest = [self.filled(item, **more) for item in asked if item != TAGS]
            return rest + tags if TAGS in asked else rest
        return asked.format_map({"inputs": self.inputs, **more}) if isinstance(asked, str) else asked


class AwsRecovery(Recovery):
    """Resources are found by their tags or names, as `LOOKS` says."""

    name: ClassVar[str] = "AWS"
    prefix: ClassVar[str] = "aws:"

    def require_place(self, stack: str, state: Mapping[str, Any]) -> None:
        mine = {
            match[1]
            for one in states.resources(state)
            if one["type"].startswith(self.prefix)
            for match in [_ACCOUNT.match(str((one.get("outputs") or {}).get("arn") or ""))]
            if match
        }
        with api.answers("aws sts get-caller-identity"):
            account = str(api.client("sts", _region(state)).get_caller_identity()["Account"])
        if mine and account not in mine:
            raise Failure(
                f"stack {stack}",
                f"is in account {', '.join(sorted(mine))}, but the credentials are for account {account}",
                "set AWS_PROFILE, or log in to the stack's own account",
            )

    def lookup(self, operation: Operation, state: Mapping[str, Any]) -> Step:
        """Errors are also those of `gpuform.clients.aws.api.answers`."""
        row = LOOKS.get(operation.type)
        if row is None:
            return Step.left(operation, "resources of this type cannot be found by tag or name")
        wanted = _wanted(operation, state)
        if not wanted.region:
            return Step.left(operation, "the state does not say in which region it would be")
        if wanted.tags.get(labels.ENVIRONMENT) is None and _by_tags(row):
            return Step.left(operation, f"it would not have the tag {labels.ENVIRONMENT}")
        try:
            found, foreign = _candidates(row, wanted, states.ids(state, operation.type))
        except KeyError as missing:
            return Step.left(operation, f"its inputs have no {missing.args[0]}")
        if len(found) > 1:
            raise ambiguous(operation, found)
        if found:
            return Step.of(
                operation,
                "import",
                "it exists, and has our tags" if row.tags or _by_tags(row) else "it exists",
                found[0],
            )
        if foreign:
            return Step.left(operation, f"{foreign[0]} exists but does not have our tags, so it is not ours")
        return Step.of(operation, "clear", "AWS does not have it")


def _region(state: Mapping[str, Any]) -> str:
    """Any region of the stack: the account is the same in each."""
    through = [one for one in states.resources(state) if one["type"] == "pulumi:providers:aws"]
    regions = [states.plain(one.get("inputs") or {}).get("region") for one in through]
    return str(next(filter(None, regions), "us-east-1"))


def _wanted(operation: Operation, state: Mapping[str, Any]) -> _Wanted:
    inputs = states.plain(operation.resource.get("inputs") or {})
    through = states.provider(state, operation.resource)
    defaults = through.get("defaultTags") or {}
    defaults = json.loads(defaults) if isinstance(defaults, str) else defaults
    own = inputs.get("tags") or {}
    region = str(inputs.get("region") or through.get("region") or "")
    return _Wanted(operation, inputs, region, {**(defaults.get("tags") or {}), **own})


def _by_tags(row: Look) -> bool:
    return bool(row.tags) or _filters(row)


def _filters(row: Look) -> bool:
    return any(item == TAGS or (isinstance(item, list) and TAGS in item) for item in row.call.asked.values())


def _candidates(row: Look, wanted: _Wanted, known: Collection[str]) -> tuple[list[str], list[str]]:
    """Import ids of matching resources, and names of resources that have its name but are not ours."""
    found: list[str] = []
    foreign: list[str] = []
    for item in _items(row, wanted):
        if any(str(_at(path, item)) != wanted.filled(text) for path, text in row.where.items()):
            continue
        name = _at(row.key, item)
        if not name:
            continue
        name = str(name).rpartition(row.after)[2] if row.after else str(name)
        id = wanted.filled(row.id, found=name)
        if {id, name} & set(known):
            continue
        ours = _is_ours(row, wanted, item, name)
        if ours is not None:
            (found if ours else foreign).append(id)
    return found, foreign


def _items(row: Look, wanted: _Wanted) -> list[Any]:
    try:
        answer = _ask(row.call, wanted.region, wanted.filled(row.call.asked))
    except api.Refused as refused:
        if refused.code in row.none:
            return []
        raise
    items = _at(row.items, answer)
    return items if isinstance(items, list) else [items] if items else []


def _is_ours(row: Look, wanted: _Wanted, item: Any, name: str) -> bool | None:
    """Whether the candidate has our tags; None if it is being deleted, or does not match the tag filter."""
    said = item
    if row.asks:
        said = _ask(row.asks, wanted.region, wanted.filled(row.asks.asked, found=name, item=item))
    if row.alive and not _at(row.alive, said):
        return None
    if not row.tags:
        return True
    tags = _flat(_at(row.tags, said))
    ours = all(tags.get(key) == value for key, value in wanted.tags.items())
    return ours if ours or not _filters(row) else None


def _at(path: str, value: Any) -> Any:
    """Evaluates a JMESPath; jmespath comes with botocore, which only AWS stacks need."""
    import jmespath  # type: ignore[import-untyped]

    return jmespath.search(path, value)


def _flat(tags: Any) -> dict[str, str]:
    """Tags as AWS's services return them: a map, or a list of pairs."""
    if isinstance(tags, Sequence):
        return {str(one["Key"]): str(one["Value"]) for one in tags}
    return {str(key): str(value) for key, value in (tags or {}).items()}


def _ask(call: Call, region: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    service, operation = call.name.split(".")
    with api.answers(f"aws {service} {operation.replace('_', '-')}"):
        client = api.client(service, region)
        if client.can_paginate(operation):
            answer = client.get_paginator(operation).paginate(**asked).build_full_result()
        else:
            answer = getattr(client, operation)(**asked)
    found: dict[str, Any] = answer
    return found
