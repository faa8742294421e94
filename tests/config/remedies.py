"""The mechanical part of a refusal's remedy, as edits: leave a key out, or set it to a named value."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import yaml

Place = tuple[str | int, ...]
Edit = Callable[[dict[str, Any]], bool]
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_KEY = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*): ([^\s{}\[\]]+|[{\[].*[}\]])")
_PLACEHOLDER = re.compile(r"\b[A-Z]+\b(?![\d.-])")
_VALUE = re.compile(r"[\w.+/@%-]*[\w%]")
_TRIED = 3
"""Values of a list that are tried: one after another has the same effect."""
_PROSE = re.compile(r"another|that|these|qps_per_replica|digits|letters|it|them|nothing|none|one")


def place(path: str) -> Place:
    """``pools[0].aws.image`` as ("pools", 0, "aws", "image")."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(path))


def followed(environment: Mapping[str, Any], expected: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each alternative that the message names exactly: its words, and the environment after it.

    A key may be meant at the place of the refusal or further up, so there may be several environments.
    """
    path, _, rest = expected.partition(": ")
    fact, _, remedy = rest.rpartition("; ") if "did you mean" not in rest else rest.partition("; ")
    for words in re.split(r",? or (?=leave|use|add|give|write|set|request|raise)", remedy):
        for told, edits in _alternatives(place(path), fact, words.strip()):
            after = [copy.deepcopy(dict(environment)) for _ in edits]
            done = [item for item, edit in zip(after, edits, strict=True) if edit(item)]
            if done:
                yield told, done


def _alternatives(at: Place, fact: str, words: str) -> Iterator[tuple[str, list[Edit]]]:
    misspelt = "unknown key" in fact or fact.startswith(
        (f"{at[-1]!r} is not known", f"unknown pool {at[-1]!r}")
    )
    if found := re.match(r"leave (it|them|[a-z_]+) out\b", words):
        yield found[0], [partial(_removed, at), partial(_removed, (*at[:-1], found[1]))]
    elif found := re.fullmatch(r"did you mean (.+)\? known: .*", words):
        yield words.partition("?")[0], [partial(_renamed if misspelt else _set, at, found[1])]
    elif found := re.fullmatch(r"(?:use one of|use|give|write|add|request|set|known:) (.+)", words):
        listed, key = (
            re.sub(r" (or (more|less|fewer|newer|higher)|at most)?( per pod)?( \(.*\))?$", "", found[1]),
            "",
        )
        for value in re.split(r"(?:, | or )(?![^{\[]*[}\]])", listed)[:_TRIED]:
            pair = _KEY.fullmatch(value if _KEY.fullmatch(value) or not key else f"{key}: {value}")
            if _PLACEHOLDER.search(value) or value.count("{") != value.count("}"):
                continue
            if pair:
                key = pair[1]
                places = [(*at[:up], *place(key)) for up in range(len(at) - 1, -1, -1)]
                yield f"use {pair[0]}", [partial(_set, item, yaml.safe_load(pair[2])) for item in places]
            elif (
                _VALUE.fullmatch(value)
                and not _PROSE.fullmatch(value)
                and not words.startswith(("add ", "write it as "))
            ):
                change = (
                    partial(_renamed, at, value) if misspelt else partial(_set, at, yaml.safe_load(value))
                )
                yield f"use {value}", [change]


def _parent(environment: dict[str, Any], at: Place) -> Any:
    here: Any = environment
    for step in at[:-1]:
        here = here[step]
    return here


def _changing(change: Callable[..., None]) -> Callable[..., bool]:
    """Whether there was such a place to change."""

    def tried(*args: Any) -> bool:
        try:
            change(*args)
        except (KeyError, IndexError, TypeError):
            return False
        return True

    return tried


@_changing
def _removed(at: Place, environment: dict[str, Any]) -> None:
    del _parent(environment, at)[at[-1]]


@_changing
def _renamed(at: Place, key: str, environment: dict[str, Any]) -> None:
    parent = _parent(environment, at)
    parent[key] = parent.pop(at[-1])


@_changing
def _set(at: Place, value: Any, environment: dict[str, Any]) -> None:
    parent = _parent(environment, at)
    if isinstance(parent, dict) and isinstance(parent.get(at[-1]), list) and not isinstance(value, list):
        value = [value]
    parent[at[-1]] = value
