"""Errors that end a command: bad input (exit 2) or work that failed (exit 1)."""

from infra.model.base.errors import InputError

__all__ = ["Failure", "InputError", "OperationError", "ServiceError"]


class Failure(Exception):
    """The input was valid, but the work failed; the command line prints this and exits with 1.

    ``str()`` is ``subject: fact; remedy``; ``--json`` prints the three parts as fields.
    """

    def __init__(self, subject: str, fact: str, remedy: str) -> None:
        super().__init__(f"{subject}: {fact}; {remedy}")
        self.subject = subject
        self.fact = fact
        self.remedy = remedy

    def replace_path(self, old: str, new: str) -> None:
        """Name the path ``new`` instead: it was moved."""
        self.fact, self.remedy = self.fact.replace(old, new), self.remedy.replace(old, new)
        self.args = (f"{self.subject}: {self.fact}; {self.remedy}",)


class OperationError(Exception):
    """An operation failed and nothing is known to have changed; ``str()`` is shown as it is."""


class ServiceError(Failure):
    """A service answered with an error."""

    @property
    def denied(self) -> bool:
        """Whether the caller lacks permission; if not, the error is about the requested object."""
        raise NotImplementedError
