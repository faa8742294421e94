"""What ends a command: bad input (exit 2) or work that failed (exit 1)."""

from infra.model.errors import InputError

__all__ = ["Failure", "InputError", "Refusal"]


class Failure(Exception):
    """Work that was asked for rightly and failed; the command line prints it and exits with 1.

    ``str()`` is ``subject: fact; remedy``.
    """

    def __init__(self, subject: str, fact: str, remedy: str) -> None:
        """Keep the three parts apart, so that ``--json`` can print them as fields."""
        super().__init__(f"{subject}: {fact}; {remedy}")
        self.subject = subject
        self.fact = fact
        self.remedy = remedy


class Refusal(Failure):
    """A service's answer that is an error."""

    @property
    def denied(self) -> bool:
        """Whether it says that the caller may not ask, rather than anything of what was asked about."""
        raise NotImplementedError
