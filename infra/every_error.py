"""Every error of an environment in one run.

Each round validates the environment. What is wrong is then replaced by a stand-in with the same name, and the
next round finds the next error. Left out are errors that may follow from an earlier one: they concern
something that names, or depends on, what is wrong itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

from infra.model.base.errors import InputError

Parts = tuple[Any, ...]
"""Keys and indexes."""
Found = Sequence[tuple[InputError, bool]]
"""Errors, each with whether it is local: found in one field or object, without a look at others."""

MAX_ROUNDS = 10
"""Our choice, for a bounded time: of the errors between parts each round finds one."""
_ITEMS = ("pools", "workloads", "namespaces")
_SECTION_OF = {"pool": "pools", "priority": "priorities", "queue": "queues", "cohort": "queues",
               "GPU": "gpus", "machine": "machines", "flavor": "cluster"}  # fmt: skip
_UNREAD = ("name", "state", "registries", "cost", "acknowledge_loss")
"""Sections that the checks of others do not read."""
_NAME = re.compile("[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")


def split(path: str, value: Any) -> tuple[Parts, str]:
    """The keys and indexes of a path that exist in ``value``, and its rest; keys may have dots."""
    parts: list[Any] = []
    while path:
        index = re.match(r"\[(\d+)\]", path)
        if index and isinstance(value, list | tuple) and int(index[1]) < len(value):
            parts.append(int(index[1]))
            path = path[index.end() :]
        else:
            rest = path.removeprefix(".")
            keys = [key for key in value if _is_within(rest, str(key))] if isinstance(value, Mapping) else []
            if not keys:
                break
            parts.append(max(keys, key=lambda key: len(str(key))))
            path = rest[len(str(parts[-1])) :]
        value = value[parts[-1]]
    return tuple(parts), path


def every_error(
    mapping: Mapping[str, Any], validate: Callable[[Mapping[str, Any]], Found]
) -> list[InputError]:
    """All errors that can be judged, in the order in which they are found."""
    rounds = _Rounds(mapping)
    for _ in range(MAX_ROUNDS):
        if not rounds.take(validate(rounds.work)):
            break
    return rounds.errors


class _Rounds:
    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self.work = deepcopy(dict(mapping))
        self.errors: list[InputError] = []
        self._replaced: set[Parts] = set()
        self._names: set[object] = set()  # of pools and other items that are wrong
        self._sections: set[str] = set()  # that are wrong themselves
        self._unsure: set[str] = set()  # paths of keys that were guessed, or lack what an unknown key gave

    def take(self, found: Found) -> bool:
        """Keep errors that follow from no other; whether something was replaced for another round."""
        # An unknown key hides the other errors of its object, until it is gone.
        found = [(error, True) for error, _ in found if error.fact == "unknown key"] or found
        places = [(error, *split(error.path, self.work)) for error, _ in found]
        for (error, parts, rest), (_, is_local) in zip(places, found, strict=True):
            if not self._follows(error, is_local, parts, rest):
                self.errors.append(error)
            if parts and error.fact != "unknown key":
                self._mark(parts)
        return any([self._replace(*place) for place in places])

    def _follows(self, error: InputError, is_local: bool, parts: Parts, rest: str) -> bool:
        path, item = error.path, parts[:2]
        if {path, path.removesuffix(rest)} & self._unsure or any(
            _is_within(path, other.path) or _is_within(other.path, path) for other in self.errors
        ):
            return True  # another branch of a union
        if unknown := re.match(r"unknown (\S+) '(.*)'", error.fact):
            return unknown[2] in self._names or _SECTION_OF.get(unknown[1]) in self._sections
        if item in self._replaced:
            return True
        if is_local or parts[:1] in [("state",), ("registries",)]:
            return False
        if len(item) < 2 or item[0] not in _ITEMS or self._sections & {*_ITEMS, "cluster"}:
            return bool(self._sections or self._names)
        if any(section in str(error) for section in self._sections):
            return True
        selecting = ("gpu", "gpu_product") if self._names and item[0] == "workloads" else ()
        text = repr(reduce(getitem, item, self.work))
        return any(repr(name) in text for name in (*selecting, *self._names))

    def _mark(self, parts: Parts) -> None:
        """Remember what is wrong, by its name if it has one."""
        value = reduce(getitem, parts[:2], self.work)
        if parts[0] not in _ITEMS or len(parts) < 2:
            self._sections |= {str(parts[0])}.difference(_UNREAD)  # a key may be a number
        elif isinstance(value, Mapping) and isinstance(value.get("name"), str) and parts[2:] != ("name",):
            self._names.add(value["name"])
        else:
            self._sections.add(parts[0])  # any name may be the one that was meant

    def _replace(self, error: InputError, parts: Parts, rest: str) -> bool:
        if error.fact == "unknown key" and not rest:
            return self._replace_key(error, parts)
        head, item = parts[0] if parts else rest, parts[:2]
        value: Any = reduce(getitem, item, self.work) if len(item) == 2 and head in _ITEMS else None
        pool = value.get("pool") if isinstance(value, dict) and head == "workloads" else None
        if item in self._replaced and pool is None:
            return False
        if value is not None:
            self.work[head][item[1]] = self._stand_in(*item)
            if pool is not None and item not in self._replaced and not error.path.endswith("].pool"):
                self.work[head][item[1]]["pool"] = pool  # once, to judge whether there is such a pool
        elif head == "cluster":  # on its kind depends what pools must have
            self.work |= {"cluster": {"kind": "embedded"}, "gpus": {}, "machines": {}}
            self.work.pop("state", None)  # an embedded cluster has none
            pools: Any = self.work.get("pools")
            for index in range(len(pools)) if isinstance(pools, list) else ():
                self._mark(("pools", index))
                self._replace(error, ("pools", index), "")
        elif head == "name":
            self.work["name"] = "stand-in"
        elif head == "pools" or self.work.pop(head, None) is None:
            return False
        self._replaced.add(item)
        return True

    def _replace_key(self, error: InputError, parts: Parts) -> bool:
        """Give the key's value to the key that was meant, if that is clear; otherwise leave it out."""
        owner: Any = reduce(getitem, parts[:-1], self.work)
        key = parts[-1]
        if key not in owner:
            return True  # an alias of YAML: the object is also elsewhere
        parent = error.path.removesuffix(str(key)).removesuffix(".")
        meant = re.match(r"did you mean (.+?)\? known: ", error.remedy)
        if meant and meant[1] not in owner:
            owner[meant[1]] = owner[key]
            self._unsure.add(f"{parent}.{meant[1]}".removeprefix("."))
        else:
            self._unsure.add(parent)
            self._mark(parts[:-1] or parts)
        del owner[key]
        return True

    def _stand_in(self, section: str, index: int) -> dict[str, Any]:
        value, free = self.work[section][index], f"stand-in-{index}"
        name = value.get("name") if isinstance(value, Mapping) else None
        if section in self._sections or not isinstance(name, str) or not _NAME.fullmatch(name):
            name = free
        if section == "namespaces":
            return {"name": name, "quota": {}}
        if section == "workloads":
            return {"name": name, "namespace": free, "kind": "pod", "image": "none:1"}
        cluster = self.work.get("cluster")
        kind = cluster.get("kind") if isinstance(cluster, Mapping) else None
        machine = {"machine": "g2.5xlarge" if kind == "openstack" else "m6i.xlarge"}
        if kind == "existing":
            return {"name": name, **machine, "selector": {"stand-in": free}}
        return {"name": name, **({"hosts": [free]} if kind == "hosts" else {**machine, "nodes": 1})}


def _is_within(path: str, outer: str) -> bool:
    return path.startswith(outer) and path[len(outer) :][:1] in ("", ".", "[")
