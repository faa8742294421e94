"""What a stack's commands print for the terminal: preflight, preview, drift, recover and health."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import count_of
from gpuform.engine.events import change_lines
from gpuform.reports import tables
from gpuform.reports.pull_request import format_pods
from gpuform.reports.tables import Cell, build_table
from gpuform.stack.drift.rules import Drift
from gpuform.stack.preflight.check import Finding
from gpuform.stack.preview.effect import Weight
from gpuform.stack.preview.outcome import Outcome, resource_name, violation_text
from gpuform.stack.recover.plan import MANUAL, Plan
from gpuform.usage.health import HealthStatus
from infra.model.base import labels
from infra.model.base.namespaces import HEALTH


def require_preflight(stack: str, findings: Iterable[Finding], console: Console) -> None:
    """Print the findings that did not pass; Failure if a check failed."""
    all_findings = list(findings)
    shown = [finding for finding in all_findings if finding.verdict != "PASS"]
    failed = [finding for finding in shown if finding.verdict == "FAIL"]
    if shown:
        console.print(tables.findings_table(tables.condensed(shown)))
    passed = len(all_findings) - len(shown)
    total = f"preflight of stack {stack}: {passed} of {len(all_findings)} checks passed, {len(failed)} failed"
    for line in [*tables.manual_checks(failed), total]:
        console.print(line, markup=False, soft_wrap=True)
    if failed:
        raise Failure(
            f"preflight of stack {stack}",
            f"{len(failed)} of {len(all_findings)} checks failed, and nothing was changed",
            "fix them, or skip the preflight: gpuform up --skip-preflight",
        )


def preview_parts(outcome: Outcome) -> Iterator[Table | Text | str]:
    if lines := [*change_lines(outcome.steps)]:
        yield Text("\n".join(["Changes", *lines, ""]))
    if outcome.effects:
        styles = {Weight.LOSS: "bold red", Weight.FAILURE: "bold red", Weight.EVICTION: "yellow"}
        effects = (
            ((item.what, styles.get(item.weight, "")), item.how, format_pods(item.evicts))
            for item in outcome.effects
        )
        yield from (build_table("Effects", ("resource", "effect", "pods stopped"), effects, below=True), "")
    if outcome.after:
        yield from (tables.bill_table(outcome.before, outcome.after), "")
    if outcome.known_violations:
        broken = (
            (
                ("broken", "red") if item.mandatory else ("warning", "yellow"),
                item.policy.split("/")[-1],
                resource_name(item.urn),
                violation_text(item.text),
            )
            for item in outcome.known_violations
        )
        yield from (build_table("Policies", ("", "policy", "resource", "violation"), broken, below=True), "")
    yield Text(f"{outcome.stack}: {outcome.verdict}", style="bold red" if outcome.reasons else "bold")
    if accepted := " ".join(f"--acknowledge {loss.name}" for loss in outcome.losses):
        yield f"undo the change, or accept what is lost: {accepted}"


def drift_parts(result: Drift, repaired: Drift | None = None) -> Iterator[Table | Text | str]:
    """One row per finding, then their number; a single line without drift.

    ``repaired`` is what was found before a repair.
    """
    gone = set(repaired.findings if repaired else ()) - set(result.findings)
    done = f"repaired {_extent(Drift(result.stack, tuple(gone)))}; " if gone else ""
    if result.out_of_use:
        closed = f"the taint of the health loop on {', '.join(result.out_of_use)}, and GPUs that they lack"
        yield Text(f"no drift: {closed}; see `gpuform status {result.stack}`")
    if not result.findings:
        yield Text(f"{result.stack}: {done}no drift", style="bold")
        return
    yield from (drift_table(result), "")
    then = f"`gpuform drift {result.stack} --repair` restores what is declared"
    if all(item.path.startswith("status.") for item in result.findings):
        then = f"`--repair` brings back no GPU that a fault took: see `gpuform status {result.stack}`"
    if repaired:
        asks = f"`gpuform status {result.stack}`, and `kubectl get -o yaml --show-managed-fields`"
        then = f"it is broken or changed again: see {asks} for who changes it"
    yield Text(f"{result.stack}: {done}drift, {_extent(result)}; {then}", style="bold red")


def drift_table(result: Drift) -> Table:
    styles = {"missing": "red"}
    rows = (
        (
            item.resource,
            item.path or "-",
            (item.how, styles.get(item.how, "yellow")),
            item.expected,
            item.found,
        )
        for item in result.findings
    )
    return build_table("Drift", ("resource", "field", "drift", "declared", "actual"), rows, below=True)


def _extent(found: Drift) -> str:
    """As in ``3 in 2 resources``."""
    resources = count_of(len({finding.resource for finding in found.findings}), "resource")
    return f"{len(found.findings)} in {resources}"


def recover_parts(plan: Plan) -> Iterator[Table | Text | str]:
    """Locks, operations and releases, each with its planned action; a single line if nothing is left."""
    if not plan.has_work:
        yield Text(f"{plan.stack}: nothing is left of an interrupted run", style="bold")
    if plan.locks:
        locks = (
            (item.owner_name, "confirmed gone" if item.confirmed else item.state, "remove")
            for item in plan.locks
        )
        yield from (build_table("Locks", ("held by", "state", "action"), locks), "")
    if plan.steps:
        columns = ("resource", "type", "interrupted while", "action", "id", "why")
        steps = (
            _row(
                (step.name, step.type, step.interrupted_while, step.does, step.id or "-", step.why), step.does
            )
            for step in plan.steps
        )
        yield from (build_table("Interrupted operations", columns, steps), "")
    if plan.releases:
        releases = (
            _row(
                (
                    item.id,
                    item.status,
                    f"{item.does} to {item.revision}" if item.revision else item.does,
                    item.why,
                ),
                item.does,
            )
            for item in plan.releases
        )
        yield from (build_table("Helm releases", ("release", "status", "action", "why"), releases), "")


def _row(texts: tuple[str, ...], action: str) -> tuple[Cell, ...]:
    return tuple((text, "yellow" if action == MANUAL else "") for text in texts)


def health_table(status: HealthStatus) -> Table:
    rows = (
        (item.name, item.pool, item.kind, item.since, item.why, item.repaired or "") for item in status.nodes
    )
    columns = ("node", "pool", "class", "since", "fault", "repaired")
    return build_table("", columns, rows, optional=("pool", "class"), below=True)


def health_lines(status: HealthStatus, mode: str) -> Iterator[str]:
    """Mode, open tickets, the breaker and how to reset it, and how to mark a node as repaired."""
    tickets = count_of(sum(ticket.open for ticket in status.tickets), "ticket")
    yield f"mode {mode}; {len(status.nodes)} out of use, {tickets} open"
    if status.breaker is not None:
        yield f"breaker open: {status.breaker}; withheld: {', '.join(status.withheld)}"
        yield (
            f"look for a common cause, then: kubectl -n {HEALTH} annotate configmap "
            f"gpu-health-state {labels.RESET_BREAKER}='why'"
        )
    if status.nodes:
        yield f"to mark a node as repaired: kubectl annotate node NODE {labels.GPU_REPAIRED}='what was done'"
