"""Rules, the resources that they check, and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from policies import contract

Severity = Literal["low", "medium", "high", "critical"]
Props = Mapping[str, Any]


@dataclass(frozen=True)
class Resource:
    """One resource: type token, name in the program, inputs, and inputs with ignored changes."""

    type: str
    name: str
    props: Props
    ignores: tuple[str, ...] = ()


Check = Callable[[Resource, Sequence[Resource]], Iterable[str]]


@dataclass(frozen=True)
class Rule:
    """What must hold for every resource of the given types; ``check`` yields the violations.

    ``types`` are type tokens; one that ends in ``:`` or ``/`` is a prefix. A rule with ``whole_stack`` also
    checks the other resources of the stack. A value that is unknown in a preview raises the analyzer's own
    error, which becomes an advisory that names the property.
    """

    id: str
    title: str
    severity: Severity
    remedy: str
    types: tuple[str, ...]
    check: Check
    whole_stack: bool = False
    exempts: bool = False
    """Whether the pack's configuration may exempt namespaces from it."""
    reads_platform: bool = False
    """Whether it compares with objects that are missing from a run on the nodes alone (``contract.ONLY``)."""

    def concerns(self, resource: Resource) -> bool:
        return any(
            resource.type.startswith(token) if token.endswith((":", "/")) else resource.type == token
            for token in self.types
        )


@dataclass(frozen=True)
class Finding:
    """A rule that a resource breaks, and how."""

    rule: Rule
    resource: Resource
    fact: str


def judge(rules: Iterable[Rule], resources: Sequence[Resource]) -> Iterator[Finding]:
    """Every finding, in the order of the rules; the inputs of all resources must be known."""
    for rule in rules:
        for resource in resources:
            if rule.concerns(resource):
                for fact in rule.check(resource, resources):
                    yield Finding(rule, resource, fact)


def get(props: Any, *path: str) -> Any:
    """The value at a path of keys; None where the path ends early."""
    for key in path:
        if not isinstance(props, Mapping):
            return None
        props = props.get(key)
    return props


def mapping(props: Any, *path: str) -> Mapping[str, Any]:
    """The mapping at a path of keys; empty where there is none."""
    value = get(props, *path)
    return value if isinstance(value, Mapping) else {}


def text(props: Any, *path: str) -> str:
    """The value at a path of keys as text; empty where there is none."""
    value = get(props, *path)
    return "" if value is None else str(value)


def items(props: Any, *path: str) -> Sequence[Any]:
    """The list at a path of keys; empty where there is none."""
    value = get(props, *path)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def as_list(value: Any) -> Sequence[Any]:
    """The items of a value that may be a list, a single item or missing."""
    return [] if value is None else [value] if isinstance(value, (str, Mapping)) else value


def chart_of(resource: Resource) -> str:
    """Name of the chart without folder and repository; empty if the resource is not a release."""
    return text(resource.props, "chart").rsplit("/", 1)[-1] if resource.type == contract.RELEASE else ""
