"""The Pulumi program of a project, whose ``__main__.py`` calls `run` (docs/adr/0018)."""

from infra.__main__ import main as run

__all__ = ["run"]
