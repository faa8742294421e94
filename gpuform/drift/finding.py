"""One thing that is not as declared, and all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, order=True)
class Finding:
    """Something that is not as it was made.

    ``path`` is empty where the whole is meant. ``expected`` and ``found`` are there where no secret can be in
    them: never for what the engine found, whose objects may hold some.
    """

    resource: str
    path: str
    how: Literal["changed", "missing", "added"]
    by: Literal["engine", "cluster"]
    expected: str = ""
    found: str = ""


@dataclass(frozen=True)
class Drift:
    """Everything that was found in one stack."""

    stack: str
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, stack: str, engine: Iterable[Finding], cluster: Iterable[Finding]) -> Drift:
        """Both put together: what both have seen is told once, as the cluster tells it, with its values."""
        told = sorted(set(cluster))
        seen = {(one.resource, one.path) for one in told}
        whole = {resource for resource, path in seen if not path}
        more = [
            one for one in set(engine) if (one.resource, one.path) not in seen and one.resource not in whole
        ]
        return cls(stack, tuple(sorted([*told, *more])))

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform drift --json``."""
        return {
            "stack": self.stack,
            "drift": bool(self.findings),
            "findings": [asdict(one) for one in self.findings],
        }


def at(path: str, key: str) -> str:
    """The path of a key, spelled as the engine spells it."""
    return f'{path}["{key}"]' if set(key) & set('."[]') else f"{path}.{key}"
