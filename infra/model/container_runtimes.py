"""From which version container runtimes give containers CDI devices (Container Device Interface).

Sources: containerd, docs/cri/config.md and release notes of 1.7.0 (``enable_cdi``, off) and 2.0.0 (on);
CRI-O, release notes of 1.23.0 (on). A runtime without CDI starts the container without its GPU, and reports
no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Runtime = Literal["containerd", "crio"]
NVIDIA_RUNTIME = "nvidia"
"""The RuntimeClass that the operator creates, and the handler that Ansible adds to a host's runtime."""


class Cdi(NamedTuple):
    """The first version with CDI, and the first that has it on by default."""

    known: tuple[int, int]
    on: tuple[int, int]


CDI: Mapping[Runtime, Cdi] = {"containerd": Cdi((1, 7), (2, 0)), "crio": Cdi((1, 23), (1, 23))}

MAJORS: Mapping[Runtime, tuple[int, ...]] = {"containerd": (1, 2), "crio": (1,)}
"""Published major versions (their release pages, 2026-11)."""


def spelled(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
