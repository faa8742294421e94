"""The job description that a run's process gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run; paths are absolute.

    ``variables`` are set for ansible-playbook, ``command`` has further arguments for it. ``folders`` are
    removed at the end.
    """

    folder: str
    project: str
    playbook: str
    inventory: str
    variables: Mapping[str, str]
    command: str
    folders: Sequence[str]
