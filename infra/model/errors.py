"""The one error for bad input: where it stands, what is wrong, what to do."""


class InputError(ValueError):
    """Bad input; the command line prints it and exits with 2, before any change.

    ``str()`` is ``path: fact; remedy``, for example
    ``pools[2].sharing.replicas: 1 shares nothing; use 2 or more, or kind: exclusive``;
    ``--json`` prints the three parts as fields.
    """

    def __init__(self, path: str, fact: str, remedy: str) -> None:
        super().__init__(f"{path}: {fact}; {remedy}")
        self.path = path
        self.fact = fact
        self.remedy = remedy
