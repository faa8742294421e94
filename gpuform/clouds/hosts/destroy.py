"""How a stack on own hosts is destroyed: as on an existing cluster, and the hosts are not changed."""

from __future__ import annotations

from dataclasses import dataclass

from gpuform.clouds.existing.destroy import ExistingTeardown


@dataclass
class HostsTeardown(ExistingTeardown):
    """Says that the hosts stay as they are."""

    def notes(self) -> tuple[str, ...]:
        return (
            "hosts: what was installed on them stays (driver, toolkit, settings): docs/reference/roles.md",
        )
