"""What a stack's commands print for the terminal: preflight, preview, drift, recover and health."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuform.checkout.errors import Failure
from gpuform.reports import tables
from gpuform.reports.pull_request import pods
from gpuform.reports.tables import Cell, filled, number
from gpuform.stack.drift.rules import Drift
from gpuform.stack.preflight.check import Finding
from gpuform.stack.preview.outcome import Outcome, fact, name
from gpuform.stack.recover.plan import MANUAL, Plan
from gpuform.usage.health import Seen
from infra.model import labels
from infra.model.health import HEALTH


def require_preflight(stack: str, findings: Iterable[Finding], console: Console) -> None:
    """Print the findings that did not pass; Failure if a check failed."""
    found = list(findings)
    shown = [finding for finding in found if finding.verdict != "PASS"]
    failed = [finding for finding in shown if finding.verdict == "FAIL"]
    if shown:
        console.print(tables.findings(shown))
    passed = len(found) - len(shown)
    total = f"preflight of stack {stack}: {passed} of {len(found)} checks passed, {len(failed)} failed"
    for line in [*tables.by_hand(failed), total]:
        console.print(line, markup=False, soft_wrap=True)
    if failed:
        raise Failure(
            f"preflight of stack {stack}",
            f"{len(failed)} of {len(found)} checks failed, and nothing was changed",
            "fix them, or skip the preflight: gpuform up --skip-preflight, "
            "GPUFORM_SKIP_PREFLIGHT=1 pulumi up",
        )


def preview(outcome: Outcome) -> Iterator[Table | Text | str]:
    if outcome.effects:
        styles = {0: "bold red", 1: "yellow"}
        effects = (
            ((one.what, styles.get(one.weight, "")), one.how, pods(one.evicts)) for one in outcome.effects
        )
        yield from (filled("Effects", ("resource", "effect", "pods stopped"), effects), "")
    if outcome.after:
        yield from (tables.bill(outcome.before, outcome.after), "")
    if outcome.said:
        broken = (
            (
                ("broken", "red") if one.mandatory else ("warning", "yellow"),
                one.policy.split("/")[-1],
                name(one.urn),
                fact(one.text),
            )
            for one in outcome.said
        )
        yield from (filled("Policies", ("", "policy", "resource", "violation"), broken), "")
    yield Text(f"{outcome.stack}: {outcome.verdict}", style="bold red" if outcome.reasons else "bold")


def drift(found: Drift) -> Iterator[Table | Text | str]:
    """One row per finding, then their number; a single line without drift."""
    if not found.findings:
        yield Text(f"{found.stack}: no drift", style="bold")
        return
    styles = {"missing": "red"}
    rows = (
        (one.resource, one.path or "-", (one.how, styles.get(one.how, "yellow")), one.expected, one.found)
        for one in found.findings
    )
    yield from (filled("Drift", ("resource", "field", "drift", "declared", "actual"), rows), "")
    resources = number(len({one.resource for one in found.findings}), "resource")
    restores = "`pulumi up --refresh` restores the declared state of everything that it created"
    yield Text(f"{found.stack}: drift, {len(found.findings)} in {resources}; {restores}", style="bold red")


def recover(plan: Plan) -> Iterator[Table | Text | str]:
    """Locks, operations and releases, each with its planned action; a single line if nothing is left."""
    if not plan.to_do:
        yield Text(f"{plan.stack}: nothing is left of an interrupted run", style="bold")
    if plan.locks:
        locks = (
            (lock.named, "confirmed gone" if lock.confirmed else lock.state, "remove") for lock in plan.locks
        )
        yield from (filled("Locks", ("held by", "state", "action"), locks), "")
    if plan.steps:
        columns = ("resource", "type", "interrupted while", "action", "id", "why")
        steps = (
            _row((step.name, step.type, step.was, step.does, step.id or "-", step.why), step.does)
            for step in plan.steps
        )
        yield from (filled("Interrupted operations", columns, steps), "")
    if plan.releases:
        releases = (
            _row(
                (one.id, one.status, f"{one.does} to {one.revision}" if one.revision else one.does, one.why),
                one.does,
            )
            for one in plan.releases
        )
        yield from (filled("Helm releases", ("release", "status", "action", "why"), releases), "")


def _row(words: tuple[str, ...], does: str) -> tuple[Cell, ...]:
    return tuple((word, "yellow" if does == MANUAL else "") for word in words)


def health(seen: Seen) -> Table:
    rows = ((one.name, one.pool, one.kind, one.since, one.why, one.repaired or "") for one in seen.nodes)
    return filled("", ("node", "pool", "class", "since", "fault", "repaired"), rows)


def health_lines(seen: Seen, mode: str) -> Iterator[str]:
    """Mode, open tickets, the breaker and how to reset it, and how to mark a node as repaired."""
    tickets = number(sum(one.open for one in seen.tickets), "ticket")
    yield f"mode {mode}; {len(seen.nodes)} out of use, {tickets} open"
    if seen.breaker is not None:
        yield f"breaker open: {seen.breaker}; withheld: {', '.join(seen.withheld)}"
        yield (
            f"look for a common cause, then: kubectl -n {HEALTH} annotate configmap "
            f"gpu-health-state {labels.RESET_BREAKER}='why'"
        )
    if seen.nodes:
        yield f"to mark a node as repaired: kubectl annotate node NODE {labels.GPU_REPAIRED}='what was done'"
