"""One row of the table: what a Pulumi type is at Magnum, and what comes back when it is made.

Which inputs there are, and which of them Magnum fills in itself, is what the schemas of the OpenStack
provider say (openstack/resource_openstack_containerinfra_*.go: Computed, Default), which pulumi_openstack
wraps; a test compares names and types with the SDK's argument classes. Which force a replacement is said by
``infra.model.magnum_changes``, the one table of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpuform.plugins.properties import UNKNOWN

Failures = Iterator[tuple[str, str]]
Rule = Callable[[Mapping[str, Any]], Failures]


class Kind(Enum):
    """What an input is, in words."""

    TEXT = "a string"
    WHOLE = "a whole number"
    FLAG = "true or false"
    TEXTS = "a map of strings"

    def holds(self, value: Any) -> bool:
        """Whether a value is of this kind; one that is not known yet may be of any."""
        if value is UNKNOWN:
            return True
        if self is Kind.TEXT:
            return isinstance(value, str)
        if self is Kind.WHOLE:
            return isinstance(value, int) and not isinstance(value, bool)
        if self is Kind.FLAG:
            return isinstance(value, bool)
        return isinstance(value, Mapping) and all(Kind.TEXT.holds(item) for item in value.values())


@dataclass(frozen=True)
class Row:
    """A Pulumi resource type.

    ``inputs`` are all that the SDK has, ``required`` those that the provider cannot do without. ``filled``
    are inputs that Magnum fills in where the program says nothing, so that taking one away changes nothing.
    ``replaces`` are those that Magnum cannot change. ``defaults`` become inputs, as with the real provider;
    ``outputs`` are templates: {uuid} {region} {endpoint} {ip}, which inputs overlay; ``rules`` look at all.
    """

    noun: str
    inputs: Mapping[str, Kind]
    required: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    has_kubeconfig: bool = False

    def forces(self, path: str, removed: bool) -> bool:
        """Whether a change at ``path`` (names and dots, no indices) needs a new object."""
        return path.split(".")[0].split("[")[0] in self.replaces

    def failures(self, inputs: Mapping[str, Any]) -> Failures:
        """What the provider or Magnum would refuse, of plain values: pairs of the input's path and why."""
        known = ", ".join(sorted(self.inputs))
        for name, value in inputs.items():
            if name not in self.inputs:
                yield name, f"there is no such input; there are {known}"
            elif not self.inputs[name].holds(value):
                yield name, f"{value!r} is not {self.inputs[name].value}"
        for name in self.required:
            if inputs.get(name) in (None, ""):
                yield name, f"missing; Magnum makes no {self.noun} without it"
        if all(self.inputs[name].holds(value) for name, value in inputs.items() if name in self.inputs):
            for rule in self.rules:
                yield from rule({key: value for key, value in inputs.items() if value is not UNKNOWN})
