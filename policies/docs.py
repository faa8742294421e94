"""The page on the rules: ``python -m policies.docs`` prints it."""

from __future__ import annotations

from collections.abc import Iterator

from policies.pack import RULES
from policies.rule import Rule

HEAD = """# Policies

Written by `make docs` from the rules in `policies/`. `gpuform preview` and
`pulumi preview --policy-pack policies` check every resource against them, and `gpuform render` what it
writes. A broken rule fails the run; one of severity low only warns. What a preview cannot know yet is
reported, and checked by `up`.
"""


def page() -> str:
    """The whole page, in the order of the pack."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    yield "| rule | severity | what must hold |"
    yield "|---|---|---|"
    for rule in RULES:
        yield f"| [{rule.id}](#{rule.id}) | {rule.severity} | {rule.title} |"
    for rule in RULES:
        yield from _section(rule)


def _section(rule: Rule) -> Iterator[str]:
    kinds = ", ".join(f"`{token}`" for token in rule.types)
    beside = " It also checks the rest of the stack." if rule.whole else ""
    yield ""
    yield f"## {rule.id}"
    yield ""
    yield f"{rule.title} Severity: {rule.severity}."
    yield ""
    yield f"Remedy: {rule.remedy}."
    yield ""
    yield f"Checks {kinds}.{beside}"


if __name__ == "__main__":
    print(page(), end="")
