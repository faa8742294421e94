"""The comment on a pull request: the most important facts first, with a limited length.

GitHub refuses comments above 65,536 characters. The diff goes last and is cut first; rows of a table beyond
the fiftieth are counted, not shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpuform.checkout.listing import some
from gpuform.engine import Step
from gpuform.engine.events import counted
from gpuform.reports import tables
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.outcome import Outcome, fact, name, paths
from gpuform.stack.preview.world import PodRef
from infra.plan.bill import Bill, per_month

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


def markdown(outcome: Outcome) -> str:
    """The whole comment; the same outcome gives the same bytes."""
    sign = "🔴" if outcome.reasons else "🟡" if outcome.evicted else "🟢"
    title, *why = _sentences(outcome)
    parts = [
        f"{marker(outcome.stack)}\n### {sign} `{outcome.stack}`: {_text(title)}",
        "\n".join(f"- {_text(text, _LONGEST)}" for text in why),
        *([_listing(outcome.reasons)] if len(outcome.reasons) > 1 else []),
        *([f"**Warnings**\n\n{_listing(outcome.warnings)}"] if outcome.warnings else []),
        _effects("Lost, with everything in it", outcome, Weight.LOSS),
        _effects("Evicted", outcome, Weight.EVICTION),
        _cost(outcome),
        _policies(outcome),
        _effects("Workloads that restart", outcome, Weight.RESTART),
        _effects("Other effects", outcome, Weight.NOTICE),
        _footer(outcome),
    ]
    head = "\n\n".join(part for part in parts if part)
    return _with_diff(head, outcome)


def _sentences(outcome: Outcome) -> list[str]:
    """The verdict; a long error is split into sentences, so that the first says what is wrong."""
    if len(outcome.verdict) <= WIDTH or len(outcome.reasons) != 1 or not outcome.error:
        return [outcome.verdict]
    return outcome.verdict.split("; ")


def _listing(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_text(text)}" for text in texts)


def _effects(title: str, outcome: Outcome, weight: Weight) -> str:
    found = [one for one in outcome.effects if one.weight is weight]
    if not found:
        return ""
    rows = [(one.what, one.how, _nodes(one), pods(one.evicts)) for one in found]
    return f"**{title}**\n\n" + _table(("resource", "effect", "nodes", "pods"), rows)


def _nodes(effect: Effect) -> str:
    return some(effect.nodes, _LISTED) if effect.nodes else "-"


def pods(found: Sequence[PodRef]) -> str:
    """``science/Deployment/simulation (2, PDB one)``: by owner; marks pods that no controller recreates."""
    by_owner: Counter[tuple[str, str, str]] = Counter()
    for pod in found:
        by_owner[
            (pod.namespace, pod.owner or f"Pod/{pod.name}", pod.budget or ("!" if pod.lost else ""))
        ] += 1
    texts = []
    for (namespace, owner, budget), count in sorted(by_owner.items()):
        said = [str(count)] if count > 1 else []
        said += ["not recreated"] if budget == "!" else [f"PDB {budget}"] if budget else []
        texts.append(f"{namespace}/{owner}" + (f" ({', '.join(said)})" if said else ""))
    return some(texts, _LISTED) if texts else "none"


def _cost(outcome: Outcome) -> str:
    after, before = outcome.after, outcome.before
    if after is None:
        return ""
    rows = [(what, had, has, "") for what, had, has in tables.bill_rows(before, after) if had != has]
    rows.append(("**all**", tables.bill_total(before), tables.bill_total(after), _difference(before, after)))
    listed = after.price_source
    if after.region not in (None, after.prices.region):
        listed += f"; those of {after.region} differ"
    some = after.unknown and not after.nothing_known
    said = [listed, *([f"no price: {', '.join(after.unknown)}"] if some else [])]
    if after.budget is not None:
        said.append(f"budget {after.budget:,.0f}")
    table = _table(("USD a month", "before", "after", "most"), rows)
    return f"**Cost**\n\n{table}\n\n{_text('; '.join(said))}"


def _difference(before: Bill | None, after: Bill) -> str:
    """Difference of the rounded figures, so that the row adds up."""
    had = round(per_month(before.high)) if before else 0
    return f"{round(per_month(after.high)) - had:+,}"


def _policies(outcome: Outcome) -> str:
    later = len(outcome.violations) - len(outcome.said)
    rows = [
        ("broken" if one.mandatory else "warning", one.policy.split("/")[-1], name(one.urn), fact(one.text))
        for one in outcome.said
    ]
    checked = f"{later} more can be checked only by `up`, when all values are known" if later else ""
    if not rows:
        return f"**Policies**: all hold{'; ' + checked if checked else ''}" if not outcome.error else ""
    table = _table(("", "policy", "resource", "violation"), rows)
    return f"**Policies**\n\n{table}" + (f"\n\n{checked}" if checked else "")


def _footer(outcome: Outcome) -> str:
    said = []
    if outcome.offline:
        said.append("previewed offline: all cloud answers are simulated")
    if not outcome.error and not outcome.live:
        said.append("pods are those that the environment declares; no cluster was read")
    if outcome.unplayed:
        said.append("the base could not be simulated, so every resource shows as new")
    return f"<sub>{'; '.join(said)}</sub>" if said else ""


def _with_diff(head: str, outcome: Outcome) -> str:
    shown = [step for step in outcome.steps if step.op in _SHOWN]
    shown.sort(key=lambda step: (_SHOWN.index(step.op), step.type, step.name))
    if not shown:
        return _cut(head, LIMIT) + "\n"
    counts = counted({op: count for op, count in outcome.changes.items() if op != "same"}, planned=True)
    opening = f"\n\n<details><summary>Resources: {counts}</summary>\n\n```\n"
    closing = "```\n</details>\n"
    head = _cut(head, LIMIT - 2000)
    room = LIMIT - len(head) - len(opening) - len(closing) - 40
    lines: list[str] = []
    for step in shown:
        text = _diff(step)
        if len(text) > room:
            lines.append(f"... and {len(shown) - len(lines)} more\n")
            break
        lines.append(text)
        room -= len(text)
    return head + opening + "".join(lines) + closing


def _diff(step: Step) -> str:
    differs = f": {', '.join(paths(step))}" if step.op in ("update", "replace") and paths(step) else ""
    return f"{step.op:<8}{step.type} {step.name}{differs}".replace("```", "'''")[:WIDTH] + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_row(heads), "|" + "---|" * len(heads), *(_row(map(_text, row)) for row in rows[:ROWS])]
    if len(rows) > ROWS:
        lines.append(_row([f"and {len(rows) - ROWS} more", *[""] * (len(heads) - 1)]))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str, most: int = 600) -> str:
    """Text for one table cell: no line breaks, no @mentions, no markup."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("@", "@\u200b")
    return _cut(flat, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 4] + " ..."
