"""The one error for bad input: where it stands, what is wrong, what to do."""


class InputError(ValueError):
    """Bad input; the command line prints it and exits with 2, nothing having been changed.

    ``str()`` is ``path: fact; remedy``, for example
    ``pools[2].sharing.replicas: 1 shares nothing; use 2 or more, or kind: exclusive``.
    """

    def __init__(self, path: str, fact: str, remedy: str) -> None:
        """Keep the three parts apart, so that ``--json`` can print them as fields."""
        super().__init__(f"{path}: {fact}; {remedy}")
        self.path = path
        self.fact = fact
        self.remedy = remedy
