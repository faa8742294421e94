"""The Pulumi program: a project's ``__main__.py`` calls `run` (docs/adr/0018-installation-and-project.md)."""

from infra.__main__ import main as run

__all__ = ["run"]
