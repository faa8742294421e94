"""The one error for bad input: where it stands, what is wrong, what to do."""

_LONGEST = 600
"""Characters of a path or a fact, which quote what was written."""


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
    return (
        text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    )
