"""The one error for bad input: where it stands, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_LONGEST = 600
"""Characters of a path or a fact, which quote what was written."""
_LONGEST_NAME = 128  # characters
_LONGEST_LIST = 100
"""Characters of a remedy. A longer one names only the key that was meant, and not all known keys."""


@dataclass(frozen=True)
class Place:
    """Where an error stands in a file, and the item that its path leads into, with the item's name."""

    file: str = ""
    line: int = 0
    column: int = 0
    item: str = ""
    name: str = ""

    def subject(self, path: str) -> str:
        """``Pulumi.local.yaml:41:7: pools[4] "v100": machin``; unknown parts are left out."""
        if self.name:
            inner = path.removeprefix(self.item).removeprefix(".")
            path = f'{self.item} "{self.name}"' + (f": {inner}" if inner else "")
        parts = ([f"{self.file}:{self.line}:{self.column}"] if self.file else []) + ([path] if path else [])
        return ": ".join(parts)


class InputError(ValueError):
    """Bad input; the command line prints it and exits with 2, before any change.

    ``str()`` is ``path: fact; remedy``, for example
    ``pools[2].sharing.replicas: 1 shares nothing; use 2 or more, or sharing: {kind: exclusive}``, with the
    place if it is known, and a line for each of the ``others``; ``--json`` prints the parts as fields.
    Path and fact are one line; ``str()`` cuts long ones.
    """

    def __init__(
        self, path: str, fact: str, remedy: str, place: Place | None = None, others: Sequence[InputError] = ()
    ) -> None:
        self.path = _line(path)
        self.fact = _line(fact)
        self.remedy = remedy
        self.place = place or Place()
        self.errors = (InputError(path, fact, remedy, place), *others) if others else (self,)
        if self.place.file and len(remedy) > _LONGEST_LIST and "? known: " in remedy:
            remedy = remedy.partition("known: ")[0].rstrip()
        lines = [f"{_cut(self.place.subject(self.path))}: {_cut(self.fact)}; {remedy}", *map(str, others)]
        super().__init__("\n".join([*lines, f"{len(lines)} errors"] if others else lines))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def without_secrets(errors: Iterable[InputError], data: object) -> list[InputError]:
    """The same errors without the texts of ``data`` that may be secret.

    A message repeats a wrong value, since values are not secret as a rule. A text of several lines, a JSON
    object and a text longer than a name may be a pasted kubeconfig, key or token, and no message repeats it.
    """
    texts = sorted(set(_secret_texts(data)), key=len, reverse=True)
    found = []
    for error in errors:
        fact, remedy = error.fact, error.remedy
        for quoted in (quoted for text in texts for quoted in (repr(text), text)):
            fact, remedy = fact.replace(quoted, "the given text"), remedy.replace(quoted, "the given text")
        found.append(InputError(error.path, fact, remedy))
    return found


def is_file_content(text: str) -> bool:
    """Whether a text is the content of a file rather than a name or a path."""
    return not text.isprintable() or text.lstrip().startswith("{")


def is_name(value: object) -> bool:
    """Whether a message may quote a name as it was written."""
    return isinstance(value, str) and value != "" and not any(_secret_texts(value))


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
