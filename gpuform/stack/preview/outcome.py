"""The result of a preview, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import count_of
from gpuform.engine import Step, Violation
from gpuform.engine.events import format_counts
from gpuform.stack.preview.effect import Effect, Weight
from infra.plan.cost import Bill, per_month, to_document

UNKNOWABLE = "can't be known during preview"


@dataclass(frozen=True)
class Outcome:
    """One previewed change of one stack.

    ``error`` is why there is no preview; ``live`` is True if pods were read from a cluster, False if only the
    declared ones are known; ``acknowledged`` are names of resources that may be lost; ``base_is_unknown``:
    the base could not be simulated, so there is nothing to compare with; ``warnings`` are of the stack file;
    ``refused`` is set if the stack file is invalid, with a line of ``error`` for each of its errors.
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
    refused: InputError | None = None
    base_is_unknown: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def losses(self) -> tuple[Effect, ...]:
        return tuple(
            effect
            for effect in self.effects
            if effect.weight is Weight.LOSS and effect.name not in self.acknowledged
        )

    @property
    def failures(self) -> tuple[Effect, ...]:
        return tuple(effect for effect in self.effects if effect.weight is Weight.FAILURE)

    @property
    def broken(self) -> tuple[Violation, ...]:
        return tuple(violation for violation in self.violations if violation.mandatory)

    @property
    def known_violations(self) -> tuple[Violation, ...]:
        """Violations and warnings, mandatory policies first; without those that cannot be judged yet."""
        known = [violation for violation in self.violations if not violation.text.endswith(UNKNOWABLE)]
        return tuple(sorted(known, key=lambda item: (not item.mandatory, item.policy, item.urn, item.text)))

    @property
    def evicted(self) -> int:
        """Number of pods that end although their own definition does not change."""
        pods = {pod for effect in self.effects if effect.weight <= Weight.EVICTION for pod in effect.evicts}
        return len(pods)

    @property
    def over_budget(self) -> bool:
        return self.after is not None and self.after.over_budget

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the change must not be merged as it is; empty if it may."""
        errors = self.error.splitlines() if self.refused else [self.error] if self.error else []
        texts = [f"cannot be previewed: {error}" for error in errors]
        texts += [f"{effect.what} {effect.how}: not acknowledged" for effect in self.losses]
        if self.broken:
            texts.append(f"{_format_count(len(self.broken), 'policy is', 'policies are')} broken")
        if self.over_budget and self.after is not None:
            cost, budget = per_month(self.after.high), self.after.budget or 0.0
            texts.append(f"may cost {cost:,.0f} USD a month, the budget is {budget:,.0f}")
        return tuple(texts)

    @property
    def verdict(self) -> str:
        """One line with the most important fact for a reviewer."""
        if self.reasons:
            others = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
            return self.reasons[0] + others
        if not any(count for op, count in self.changes.items() if op != "same"):
            return "no change"
        counts = format_counts(
            {op: count for op, count in self.changes.items() if op != "same"}, planned=True
        )
        failing = "".join(f"{effect.what} fails; " for effect in self.failures)
        stopped = {(pod.namespace, pod.name) for effect in self.effects for pod in effect.evicts}
        noun = "other pod" if len(stopped) > self.evicted else "pod"  # than those that the change restarts
        evicted = count_of(self.evicted, noun) if self.evicted else f"no {noun}s"
        return f"{failing}evicts {evicted}; {counts}"

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
            "effects": [{**asdict(effect), "weight": effect.weight.name.lower()} for effect in self.effects],
            "policies": [
                {
                    "policy": violation.policy,
                    "mandatory": violation.mandatory,
                    "text": violation.text,
                    "resource": resource_name(violation.urn),
                }
                for violation in self.violations
            ],
            "cost": {
                "before": to_document(self.before) if self.before else None,
                "after": to_document(self.after) if self.after else None,
            },
            "resources": [
                {"op": step.op, "type": step.type, "name": step.name, "paths": list(changed_paths(step))}
                for step in self.steps
            ],
        }


def changed_paths(step: Step) -> tuple[str, ...]:
    """Paths that differ; never values, which might be secrets."""
    return step.change.paths if step.change else ()


def resource_name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


def violation_text(text: str) -> str:
    """A violation without the policy's description, which is its first line."""
    return text.split("\n", 1)[-1].strip()


def _format_count(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"
