"""The result of a preview, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuform.engine import Step, Violation
from gpuform.engine.events import counted
from gpuform.stack.preview.effect import Effect, Weight
from infra.plan.bill import Bill, document, per_month

UNKNOWABLE = "can't be known during preview"


@dataclass(frozen=True)
class Outcome:
    """One previewed change of one stack.

    ``error`` is why there is no preview; ``live`` is True if pods were read from a cluster, False if only the
    declared ones are known; ``acknowledged`` are names of resources that may be lost; ``unplayed``: the base
    could not be simulated, so there is nothing to compare with; ``warnings`` are those of the stack file.
    """

    stack: str
    offline: bool
    live: bool
    changes: Mapping[str, int]
    steps: tuple[Step, ...] = ()
    effects: tuple[Effect, ...] = ()
    violations: tuple[Violation, ...] = ()
    before: Bill | None = None
    after: Bill | None = None
    acknowledged: tuple[str, ...] = ()
    error: str = ""
    unplayed: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def losses(self) -> tuple[Effect, ...]:
        return tuple(
            one
            for one in self.effects
            if one.weight is Weight.LOSS and one.what.rsplit(" ", 1)[-1] not in self.acknowledged
        )

    @property
    def broken(self) -> tuple[Violation, ...]:
        return tuple(one for one in self.violations if one.mandatory)

    @property
    def said(self) -> tuple[Violation, ...]:
        """Violations and warnings, mandatory policies first; without those that cannot be judged yet."""
        known = [one for one in self.violations if not one.text.endswith(UNKNOWABLE)]
        return tuple(sorted(known, key=lambda one: (not one.mandatory, one.policy, one.urn, one.text)))

    @property
    def evicted(self) -> int:
        """Number of pods that end although their own definition does not change."""
        pods = {pod for one in self.effects if one.weight <= Weight.EVICTION for pod in one.evicts}
        return len(pods)

    @property
    def over_budget(self) -> bool:
        return self.after is not None and self.after.over_budget

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the change must not be merged as it is; empty if it may."""
        found = [f"cannot be previewed: {self.error}"] if self.error else []
        found += [f"{one.what} {one.how}: not acknowledged" for one in self.losses]
        if self.broken:
            found.append(f"{_number(len(self.broken), 'policy is', 'policies are')} broken")
        if self.over_budget and self.after is not None:
            most, budget = per_month(self.after.high), self.after.budget or 0.0
            found.append(f"may cost {most:,.0f} USD a month, the budget is {budget:,.0f}")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """One line with the most important fact for a reviewer."""
        if self.reasons:
            more = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
            return self.reasons[0] + more
        if not any(count for op, count in self.changes.items() if op != "same"):
            return "no change"
        counts = counted({op: count for op, count in self.changes.items() if op != "same"}, planned=True)
        if self.evicted:
            return f"evicts {_number(self.evicted, 'pod', 'pods')}; {counts}"
        return f"evicts no pods; {counts}"

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform preview --json``."""
        return {
            "stack": self.stack,
            "verdict": self.verdict,
            "blocked": list(self.reasons),
            "warnings": list(self.warnings),
            "offline": self.offline,
            "live": self.live,
            "changes": dict(sorted(self.changes.items())),
            "effects": [{**asdict(one), "weight": one.weight.name.lower()} for one in self.effects],
            "policies": [
                {
                    "policy": one.policy,
                    "mandatory": one.mandatory,
                    "text": one.text,
                    "resource": name(one.urn),
                }
                for one in self.violations
            ],
            "cost": {
                "before": document(self.before) if self.before else None,
                "after": document(self.after) if self.after else None,
            },
            "resources": [
                {"op": one.op, "type": one.type, "name": one.name, "paths": list(paths(one))}
                for one in self.steps
            ],
        }


def paths(step: Step) -> tuple[str, ...]:
    """Paths that differ; never values, which might be secrets."""
    return step.change.paths if step.change else ()


def name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


def fact(text: str) -> str:
    """A violation without the policy's description, which is its first line."""
    return text.split("\n", 1)[-1].strip()


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
