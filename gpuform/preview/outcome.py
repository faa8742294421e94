"""What a preview found, and the verdict that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuform.engine import Step, Violation
from gpuform.engine.events import counted
from gpuform.preview.effect import Effect, Weight
from infra.plan.bill import Bill, document, per_month

UNKNOWABLE = "can't be known during preview"


@dataclass(frozen=True)
class Outcome:
    """One previewed change of one stack.

    ``error`` is why there is no preview; ``live`` says whether pods were read from a cluster or only from
    what is declared; ``acknowledged`` are names of what may be lost; ``unplayed`` says that nothing of the
    base is there to compare with.
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

    @property
    def losses(self) -> tuple[Effect, ...]:
        """What would be lost and nobody has acknowledged."""
        return tuple(
            one
            for one in self.effects
            if one.weight is Weight.LOSS and one.what.rsplit(" ", 1)[-1] not in self.acknowledged
        )

    @property
    def broken(self) -> tuple[Violation, ...]:
        """Policies that forbid the change."""
        return tuple(one for one in self.violations if one.mandatory)

    @property
    def said(self) -> tuple[Violation, ...]:
        """Policies that are broken or warn, broken ones first; without those that cannot be judged yet."""
        known = [one for one in self.violations if not one.text.endswith(UNKNOWABLE)]
        return tuple(sorted(known, key=lambda one: (not one.mandatory, one.policy, one.urn, one.text)))

    @property
    def evicted(self) -> int:
        """Pods that end though nothing about them is changed."""
        pods = {pod for one in self.effects if one.weight <= Weight.EVICTION for pod in one.evicts}
        return len(pods)

    @property
    def over_budget(self) -> bool:
        """Whether it may come to more than the environment's budget."""
        return self.after is not None and self.after.over_budget

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the change must not be merged as it is; none where it may."""
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
        """One line: what a reviewer must know first."""
        if self.reasons:
            more = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
            return self.reasons[0] + more
        if not any(count for op, count in self.changes.items() if op != "same"):
            return "no change"
        counts = counted({op: count for op, count in self.changes.items() if op != "same"}, planned=True)
        if self.evicted:
            return f"evicts {_number(self.evicted, 'pod', 'pods')}; {counts}"
        return f"evicts nobody; {counts}"

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform preview --json``."""
        return {
            "stack": self.stack,
            "verdict": self.verdict,
            "blocked": list(self.reasons),
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
    """What differs, by path; never a value, for that might be a secret."""
    return step.change.paths if step.change else ()


def name(urn: str) -> str:
    """The resource's name in a URN; empty for none."""
    return urn.rsplit("::", 1)[-1]


def fact(text: str) -> str:
    """A violation without the policy's description, which is its first line."""
    return text.split("\n", 1)[-1].strip()


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
