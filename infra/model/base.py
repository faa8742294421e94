"""Base of every type of the environment (frozen, no unknown keys), and helpers to declare its keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from infra.model.errors import InputError
from infra.model.losses import USED_CLUSTERS

Strict = Annotated[str, Field(strict=True)]
"""Only as the base of a type with a validator: no field is any text."""
Flag = Annotated[bool, Field(strict=True)]
NUMBER = r"(0|[1-9][0-9]{0,3})"
"""A part of a version: a number without leading zeros."""
SHARE = r"([1-9][0-9]?|100)%"
"""From 1 to 100 percent."""


def listing(known: Iterable[str], wrong: str = "", family: str = "") -> str:
    """The known names for an error's remedy, after the closest one if it is similar to ``wrong``.

    ``family``: start in which both must be equal, because by letters alone g5.xlarge is close to c5.xlarge.
    """

    def start(name: str) -> str:
        return re.findall(f"^{family}", re.sub("[^a-z0-9]", "", name.lower()))[0] if family else ""

    names = list(known)
    similar = [name for name in names if start(name) == start(wrong)]
    close = difflib.get_close_matches(wrong, similar, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(names)}"


class Model(BaseModel):
    """Base of every declared type; an unknown key is an error that lists the known ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Keys that users may expect here but that are not supported: (fact, remedy) for each."""

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key in cls.KEY_HINTS:
                    raise InputError(str(key), *cls.KEY_HINTS[key])
                if key not in known:
                    raise InputError(str(key), "unknown key", listing(known, str(key)))
        return data


class ClusterModel(Model):
    """Base of the kinds of cluster."""

    kind: str

    @property
    def created(self) -> bool:
        """Whether a stack creates the cluster and its nodes."""
        return self.kind not in USED_CLUSTERS


def required(description: str, **more: Any) -> Any:
    """A key that must be given; ``more`` are keywords of pydantic's ``Field``."""
    return Field(description=description, **more)


def option(description: str, default: Any = None, **more: Any) -> Any:
    """A key that may be left out; a type as ``default`` makes the value."""
    key = "default_factory" if isinstance(default, type) else "default"
    return Field(description=description, **{key: default}, **more)


def matching(pattern: str, noun: str, remedy: str, longest: int | None = None) -> AfterValidator:
    """A text that the whole pattern matches; of the classes \\d and \\w only ASCII counts."""
    compiled = re.compile(pattern, re.ASCII)

    def is_invalid(value: str) -> bool:
        return not compiled.fullmatch(value) or (longest is not None and len(value) > longest)

    return refusing(is_invalid, f"{{!r}} is not {noun}", remedy)


def refusing(is_bad: Callable[[Any], object], fact: str, remedy: str) -> AfterValidator:
    """Refuse values for which ``is_bad`` is true; ``{}`` or ``{!r}`` in ``fact`` stands for the value."""

    def check(value: Any) -> Any:
        if is_bad(value):
            raise InputError("", fact.format(value), remedy)
        return value

    return AfterValidator(check)


def one_of(noun: str, names: Collection[str]) -> AfterValidator:
    """One of the names, which the error for another one lists."""

    def check(value: str) -> str:
        if value not in names:
            raise InputError("", f"unknown {noun} {value!r}", listing(names, value))
        return value

    return AfterValidator(check)


def each_once(
    remedy: str, prefix: str = "", key: Callable[[Any], object] = lambda value: value
) -> AfterValidator:
    """No entry twice; ``prefix`` is put before the entry; spellings with the same ``key`` are one entry."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        keys: list[object] = []
        for index, value in enumerate(values):
            if key(value) in keys:
                raise InputError(f"[{index}]", f"{prefix}{value} is given twice", remedy)
            keys.append(key(value))
        return values

    return AfterValidator(check)
