"""Parses a stack file or the engine's config into an Environment; every error carries its path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra import strict_yaml
from infra.every_error import every_error, split
from infra.model.aws.cluster import AwsCluster
from infra.model.base.errors import InputError, Place, is_name, without_secrets
from infra.model.base.fields import listing
from infra.model.base.prices import OtherPrices, PriceList
from infra.model.checks import environment
from infra.model.environment import Environment
from infra.model.gpu.own import own_catalogue
from infra.model.openstack.cluster import declared_flavors

Read = TypeVar("Read", bound=BaseModel)
KEY = "gpuform:environment"
PRICES = Path(__file__).resolve().parent / "prices"
"""Price lists of regions, as ``gpuform prices refresh`` writes them."""


def parse(mapping: Mapping[str, Any], source: str = "Pulumi.local.yaml") -> Environment:
    """The environment that ``mapping`` declares.

    Raises InputError with all errors; their paths start inside the environment, as in
    ``pools[2].sharing.replicas``. ``source`` is the path only if an error has no place inside.
    """
    if not isinstance(mapping, Mapping):
        fact = f"{KEY} holds {_kind_of(mapping)}"
        raise InputError(source, fact, "it must hold keys: name, cluster, pools, ...")
    env, _ = _validate(mapping, source)
    if env is not None:
        return env
    errors = every_error(mapping, lambda work: _validate(work, source)[1])
    raise _located(without_secrets(errors, mapping), mapping)


def read_model(model: type[Read], path: Path, keys: str, remedy: str) -> Read:
    """A YAML file as that model; InputError with line and column.

    ``keys``: its keys; ``remedy``: of a file that cannot be read.
    """
    source = str(strict_yaml.short_path(path))
    text = strict_yaml.read_text(path, remedy)
    content = strict_yaml.parse(text, source)
    if not isinstance(content, Mapping):
        raise InputError(source, f"holds {_kind_of(content)}", f"it must hold keys: {keys}")
    return validate_model(model, content, source, text)


def validate_model(model: type[Read], content: Mapping[str, Any], source: str, text: str = "") -> Read:
    """The content of a file as that model; with its text, errors have line and column."""
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        found = [_translate(detail, content, source) for detail in _details(error)]
        if not text:
            raise InputError(f"{source}: {found[0].path}", found[0].fact, found[0].remedy) from None
        raise _located(found, content, source, text, ()) from None


def _located(
    errors: Sequence[InputError],
    mapping: Mapping[str, Any],
    file: str = "",
    text: str = "",
    prefix: Sequence[str] = ("config", KEY),
) -> InputError:
    """One error of all, each with its place in the file's text; several have the names of items, too."""
    if not file and len(errors) == 1:
        return errors[0]
    find = strict_yaml.positions(text) if file else lambda parts: (0, 0)
    found = []
    for error in errors:
        parts, _ = split(error.path, mapping)
        item, name, value = "", "", mapping
        for number, part in enumerate(parts, 1):
            value = value[part]
            if isinstance(part, int) and isinstance(value, Mapping) and is_name(value.get("name")):
                item, name = _path(parts[:number], mapping), value["name"]
        found.append((error, Place(file, *find((*prefix, *parts)), item, name)))
    found.sort(key=lambda pair: (pair[1].line, pair[1].column))
    first, *others = [InputError(one.path, one.fact, one.remedy, place) for one, place in found]
    return InputError(first.path, first.fact, first.remedy, first.place, others)


def _validate(
    mapping: Mapping[str, Any], source: str
) -> tuple[Environment | None, Sequence[tuple[InputError, bool]]]:
    """The environment, or else errors; those of the checks of the whole come last, and are not local."""
    try:
        env = Environment.model_validate(dict(mapping), context=_context(mapping))
    except ValidationError as error:
        return None, [
            (_translate(detail, mapping, source), bool(detail["loc"])) for detail in _details(error)
        ]
    except InputError as error:
        return None, [(error, True)]
    try:
        environment.check(env)
        if any(work.pod or work.rdma for work in env.workloads):
            from infra.plan.workloads import check_fragments  # the only part of the plan that is needed here

            check_fragments(env)
    except InputError as error:
        return None, [(error, False)]
    return env, ()


def _details(error: ValidationError) -> Iterator[ErrorDetails]:
    for detail in error.errors():
        # pydantic counts only the valid entries of a list
        if detail["type"] != "too_short" or len(detail["input"]) == detail["ctx"]["actual_length"]:
            yield detail


def _context(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """What pools are validated with: the cluster's kind as written, and what the environment declares."""
    cluster = mapping.get("cluster")
    kind = cluster.get("kind") if isinstance(cluster, Mapping) else None
    known = own_catalogue(mapping.get("gpus"), mapping.get("machines"), kind)
    flavors = declared_flavors(cluster, known) if kind == "openstack" else {}
    return {"cluster": kind, "catalogue": known, "flavors": flavors}


def load(path: Path) -> Environment:
    """The environment of a stack file, under ``config: gpuform:environment``.

    Raises InputError for a file that cannot be read, bad YAML and bad content, with line and column.
    """
    source = str(strict_yaml.short_path(path))
    text = strict_yaml.read_text(path)
    content = strict_yaml.parse(text, source)
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict) or KEY not in config:
        raise InputError(source, f"holds no {KEY}", f"declare it under config: {KEY}:")
    try:
        return parse(config[KEY], source)
    except InputError as error:
        if not isinstance(config[KEY], Mapping):
            raise
        raise _located(error.errors, config[KEY], source, text) from None


def price_list(env: Environment, folder: Path = PRICES) -> PriceList:
    """The price list of the environment's region if its file exists, else that of us-east-1.

    Machines missing in the region's list have no price; missing other costs are those of us-east-1. Raises
    InputError for a file that is not a price list.
    """
    file = folder / f"{env.cluster.region}.json" if isinstance(env.cluster, AwsCluster) else None
    if file is None or not file.exists():
        return PriceList()
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        return PriceList(
            data["region"], data["date"], dict(data["usd_per_hour"]), OtherPrices(**data["beside"])
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        remedy = f"write it again with `gpuform prices refresh {file.stem}`"
        source = str(strict_yaml.short_path(file))
        raise InputError(source, f"is not a price list ({error})", remedy) from None


def _translate(error: ErrorDetails, mapping: Mapping[str, Any], source: str) -> InputError:
    path = _path(error["loc"], mapping)
    context = error.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, InputError):
        suffix = cause.path if not path or not cause.path or cause.path.startswith("[") else f".{cause.path}"
        return InputError(f"{path}{suffix}" or source, cause.fact, cause.remedy)
    fact, remedy = _fact_and_remedy(error["type"], context, error.get("input"), error["msg"])
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = f"{path}.kind"
    return InputError(path or source, fact, remedy)


def _fact_and_remedy(kind: str, context: Mapping[str, Any], value: Any, message: str) -> tuple[str, str]:
    """Fact and remedy for a pydantic error type; unknown types keep pydantic's message."""
    if kind == "missing":
        return "missing", "add it"
    if kind == "union_tag_invalid":
        kinds = context["expected_tags"].replace("'", "").split(", ")
        return f"unknown kind {context['tag']!r}", listing(kinds, str(context["tag"]))
    if kind == "union_tag_not_found":
        return "missing", "set kind"
    if kind == "literal_error":
        return f"{value!r} is not known", f"use {context['expected'].replace(chr(39), '')}"
    if kind == "greater_than":
        return f"{value} is too small", f"use more than {context['gt']:g}"
    if kind == "greater_than_equal":
        return f"{value} is too small", f"use {context['ge']} or more"
    if kind == "less_than_equal":
        return f"{value} is too large", f"use {context['le']} or less"
    if kind in ("too_short", "too_long"):
        return _number_of_entries(context)
    expected = _EXPECTED.get(kind)
    if expected:
        return f"holds {_kind_of(value)}", f"give {expected}"
    return message, "correct it"


def _number_of_entries(context: Mapping[str, Any]) -> tuple[str, str]:
    length = context["actual_length"]
    if "max_length" in context:
        return f"has {length} entries", f"give {context['max_length']} or fewer"
    if length:
        return f"has {length}", f"give {context['min_length']} or more"
    return "is empty", "give at least one" if context["min_length"] == 1 else f"give {context['min_length']}"


_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text (in quotes if it looks like a number)",
    "tuple_type": "a list",
    "dict_type": "a mapping, key: value",
    "model_type": "a mapping, key: value",
    "model_attributes_type": "a mapping, key: value",
}


def _kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return f"the text {value!r}" if isinstance(value, str) else f"the number {value}"


def _path(loc: tuple[int | str, ...], mapping: Any) -> str:
    """``pools[2].sharing.replicas`` from pydantic's location, without the union tags in it."""
    path, value = "", mapping
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
            value = value[part] if isinstance(value, list | tuple) and part < len(value) else None
        elif part in _UNION_BRANCHES or _is_tag(part, value):
            continue
        else:
            path += f".{part}" if path else part
            value = value.get(part) if isinstance(value, Mapping) else None
    return path


def _is_tag(part: str, value: Any) -> bool:
    """Whether ``part`` is a union tag that pydantic inserted, not a key of the input."""
    return isinstance(value, Mapping) and part not in value and value.get("kind") == part


_UNION_BRANCHES = (
    *("str", "dict[str,constrained-int]", "[key]", "[number]", "[list]", "[share]"),
    *("[name]", "[counter]"),
    *("[own]", "[existing]", "[ids]", "[tags]"),
)
