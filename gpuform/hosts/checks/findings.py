"""How a check reports an error: the fact, and its remedy."""

from __future__ import annotations


class CheckFailure(AssertionError):
    """A check that failed; ``fact`` is what the host answered, ``remedy`` what to do about it."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}; {remedy}")
        self.fact = fact
        self.remedy = remedy


def expect(condition: bool, fact: str, remedy: str) -> None:
    if not condition:
        raise CheckFailure(fact, remedy)


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")
