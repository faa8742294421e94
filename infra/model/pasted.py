"""Texts that a person pasted where something short belongs: a kubeconfig, a key, a token.

A message repeats a wrong value, since values are not secret as a rule. A text of several lines, a JSON object
and a text longer than a name may be one, and no message repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.model.errors import InputError

_LONGEST = 128  # characters


def hidden(error: InputError, given: object) -> InputError:
    """The same error without the texts of ``given`` that may be secret."""
    fact, remedy = error.fact, error.remedy
    for text in sorted(set(_secret(given)), key=len, reverse=True):
        for shown in (repr(text), text):
            fact, remedy = fact.replace(shown, "the given text"), remedy.replace(shown, "the given text")
    return InputError(error.path, fact, remedy)


def content(text: str) -> bool:
    """Whether a text is the content of a file rather than a name or a path."""
    return not text.isprintable() or text.lstrip().startswith("{")


def _secret(given: object) -> Iterator[str]:
    if isinstance(given, str):
        if content(given) or len(given) > _LONGEST:
            yield given
    elif isinstance(given, Mapping):
        for item in given.values():
            yield from _secret(item)
    elif isinstance(given, list | tuple):
        for item in given:
            yield from _secret(item)
