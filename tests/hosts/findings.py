"""How a check says what is wrong: the fact, and what mends it."""

from __future__ import annotations


class Wrong(AssertionError):
    """A check that failed; ``fact`` is what the host answered, ``remedy`` what to do about it."""

    def __init__(self, fact: str, remedy: str) -> None:
        """Keep both apart: they are two fields of the JSON."""
        super().__init__(f"{fact}; {remedy}")
        self.fact = fact
        self.remedy = remedy


def expect(condition: bool, fact: str, remedy: str) -> None:
    """Fail the check with that fact and that remedy unless the condition holds."""
    if not condition:
        raise Wrong(fact, remedy)


def first_line(text: str) -> str:
    """The first line that says something; a program that printed nothing is said to have."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")
