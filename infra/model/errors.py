"""The one error for bad input: where it stands, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_LONGEST = 600
"""Characters of a path or a fact, which quote what was written."""
_LONGEST_NAME = 128  # characters


class InputError(ValueError):
    """Bad input; the command line prints it and exits with 2, before any change.

    ``str()`` is ``path: fact; remedy``, for example
    ``pools[2].sharing.replicas: 1 shares nothing; use 2 or more, or kind: exclusive``;
    ``--json`` prints the three parts as fields. Path and fact are one line; ``str()`` cuts long ones.
    """

    def __init__(self, path: str, fact: str, remedy: str) -> None:
        self.path = _line(path)
        self.fact = _line(fact)
        self.remedy = remedy
        super().__init__(f"{_cut(self.path)}: {_cut(self.fact)}; {remedy}")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def without_secrets(error: InputError, data: object) -> InputError:
    """The same error without the texts of ``data`` that may be secret.

    A message repeats a wrong value, since values are not secret as a rule. A text of several lines, a JSON
    object and a text longer than a name may be a pasted kubeconfig, key or token, and no message repeats it.
    """
    fact, remedy = error.fact, error.remedy
    for text in sorted(set(_secret_texts(data)), key=len, reverse=True):
        for quoted in (repr(text), text):
            fact, remedy = fact.replace(quoted, "the given text"), remedy.replace(quoted, "the given text")
    return InputError(error.path, fact, remedy)


def is_file_content(text: str) -> bool:
    """Whether a text is the content of a file rather than a name or a path."""
    return not text.isprintable() or text.lstrip().startswith("{")


def _secret_texts(data: object) -> Iterator[str]:
    if isinstance(data, str):
        if is_file_content(data) or len(data) > _LONGEST_NAME:
            yield data
    elif isinstance(data, Mapping):
        for item in data.values():
            yield from _secret_texts(item)
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _secret_texts(item)
