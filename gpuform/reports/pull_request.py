"""The comment on a pull request: the most important facts first, with a limited length.

GitHub refuses comments above 65,536 characters. The diff goes last and is cut first; rows of a table beyond
the fiftieth are counted, not shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuform.checkout.listing import abbreviate
from gpuform.engine import Step
from gpuform.engine.events import format_counts
from gpuform.reports import tables
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.outcome import Outcome, changed_paths, resource_name, violation_text
from gpuform.stack.preview.snapshot import PodRef
from infra.plan.cost import Bill, per_month

LIMIT = 60_000
ROWS = 50
WIDTH = 300
_LONGEST = 4000
"""Maximum characters of a sentence that says what would be lost."""
_LISTED = 8
_SHOWN = ("replace", "delete", "update", "create")


def marker(stack: str) -> str:
    """The line that identifies the comment of a stack."""
    return f"<!-- gpuform preview {stack} -->"


def render_comment(outcome: Outcome) -> str:
    """The whole comment; the same outcome gives the same bytes."""
    sign = "🔴" if outcome.reasons else "🟡" if outcome.evicted or outcome.failures else "🟢"
    title, *why = _verdict_sentences(outcome)
    parts = [
        f"{marker(outcome.stack)}\n### {sign} `{outcome.stack}`: {_cell_text(title)}",
        "\n".join(f"- {_cell_text(text, _LONGEST)}" for text in why),
        *([_bullet_list(outcome.reasons)] if len(outcome.reasons) > 1 else []),
        *([f"**Warnings**\n\n{_bullet_list(outcome.warnings)}"] if outcome.warnings else []),
        _effects_table("Lost, with everything in it", outcome, Weight.LOSS),
        _effects_table("Fails unless something is done first", outcome, Weight.FAILURE),
        _effects_table("Evicted", outcome, Weight.EVICTION),
        _cost(outcome),
        _policies(outcome),
        _effects_table("Workloads that restart", outcome, Weight.RESTART),
        _effects_table("Other effects", outcome, Weight.NOTICE),
        _footer(outcome),
    ]
    head = "\n\n".join(part for part in parts if part)
    return _append_diff(head, outcome)


def _verdict_sentences(outcome: Outcome) -> list[str]:
    """The verdict; a long error is split into sentences, so that the first says what is wrong."""
    if len(outcome.verdict) <= WIDTH or len(outcome.reasons) != 1 or not outcome.error:
        return [outcome.verdict]
    return outcome.verdict.split("; ")


def _bullet_list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_cell_text(text)}" for text in texts)


def _effects_table(title: str, outcome: Outcome, weight: Weight) -> str:
    effects = [effect for effect in outcome.effects if effect.weight is weight]
    if not effects:
        return ""
    rows = [(item.what, item.how, _format_nodes(item), format_pods(item.evicts)) for item in effects]
    return f"**{title}**\n\n" + _table(("resource", "effect", "nodes", "pods"), rows)


def _format_nodes(effect: Effect) -> str:
    return abbreviate(effect.nodes, _LISTED) if effect.nodes else "-"


def format_pods(pods: Sequence[PodRef]) -> str:
    """``science/Deployment/simulation (2, PDB one)``: by owner; marks pods that no controller recreates."""
    by_owner: Counter[tuple[str, str, str]] = Counter()
    for pod in pods:
        by_owner[
            (pod.namespace, pod.owner or f"Pod/{pod.name}", pod.budget or ("!" if pod.is_lost else ""))
        ] += 1
    texts = []
    for (namespace, owner, budget), count in sorted(by_owner.items()):
        notes = [str(count)] if count > 1 else []
        notes += ["not recreated"] if budget == "!" else [f"PDB {budget}"] if budget else []
        texts.append(f"{namespace}/{owner}" + (f" ({', '.join(notes)})" if notes else ""))
    return abbreviate(texts, _LISTED) if texts else "none"


def _cost(outcome: Outcome) -> str:
    after, before = outcome.after, outcome.before
    if after is None:
        return ""
    rows = [(item, old, new, "") for item, old, new in tables.bill_rows(before, after) if old != new]
    rows.append(("**all**", tables.bill_total(before), tables.bill_total(after), _difference(before, after)))
    listed = after.price_source
    if after.region not in (None, after.prices.region):
        listed += f"; those of {after.region} differ"
    partly_known = after.unknown and not after.has_no_price
    notes = [listed, *([f"no price: {', '.join(after.unknown)}"] if partly_known else [])]
    if after.budget is not None:
        notes.append(f"budget {after.budget:,.0f}")
    table = _table(("USD a month", "before", "after", "most"), rows)
    return f"**Cost**\n\n{table}\n\n{_cell_text('; '.join(notes))}"


def _difference(before: Bill | None, after: Bill) -> str:
    """Difference of the rounded figures, so that the row adds up."""
    old = round(per_month(before.high)) if before else 0
    return f"{round(per_month(after.high)) - old:+,}"


def _policies(outcome: Outcome) -> str:
    later = len(outcome.violations) - len(outcome.known_violations)
    rows = [
        (
            "broken" if item.mandatory else "warning",
            item.policy.split("/")[-1],
            resource_name(item.urn),
            violation_text(item.text),
        )
        for item in outcome.known_violations
    ]
    checked = f"{later} more can be checked only by `up`, when all values are known" if later else ""
    if not rows:
        return f"**Policies**: all hold{'; ' + checked if checked else ''}" if not outcome.error else ""
    table = _table(("", "policy", "resource", "violation"), rows)
    return f"**Policies**\n\n{table}" + (f"\n\n{checked}" if checked else "")


def _footer(outcome: Outcome) -> str:
    notes = []
    if outcome.offline:
        notes.append("previewed offline: all cloud answers are simulated")
    if not outcome.error and not outcome.live:
        notes.append("pods are those that the environment declares; no cluster was read")
    if outcome.base_is_unknown:
        notes.append("the base could not be simulated, so every resource shows as new")
    return f"<sub>{'; '.join(notes)}</sub>" if notes else ""


def _append_diff(head: str, outcome: Outcome) -> str:
    shown = [step for step in outcome.steps if step.op in _SHOWN]
    shown.sort(key=lambda step: (_SHOWN.index(step.op), step.type, step.name))
    if not shown:
        return _shorten(head, LIMIT) + "\n"
    counts = format_counts({op: count for op, count in outcome.changes.items() if op != "same"}, planned=True)
    opening = f"\n\n<details><summary>Resources: {counts}</summary>\n\n```\n"
    closing = "```\n</details>\n"
    head = _shorten(head, LIMIT - 2000)
    room = LIMIT - len(head) - len(opening) - len(closing) - 40
    lines: list[str] = []
    for step in shown:
        text = _diff_line(step)
        if len(text) > room:
            lines.append(f"... and {len(shown) - len(lines)} more\n")
            break
        lines.append(text)
        room -= len(text)
    return head + opening + "".join(lines) + closing


def _diff_line(step: Step) -> str:
    paths = changed_paths(step) if step.op in ("update", "replace") else ()
    differs = f": {', '.join(paths)}" if paths else ""
    return f"{step.op:<8}{step.type} {step.name}{differs}".replace("```", "'''")[:WIDTH] + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_row(heads), "|" + "---|" * len(heads), *(_row(map(_cell_text, row)) for row in rows[:ROWS])]
    if len(rows) > ROWS:
        lines.append(_row([f"and {len(rows) - ROWS} more", *[""] * (len(heads) - 1)]))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell_text(text: str, limit: int = 600) -> str:
    """Text for one table cell: no line breaks, no @mentions, no markup."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("@", "@\u200b")
    return _shorten(flat, limit)


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 4] + " ..."
