"""The whole bed: installed, started, furnished; skipped with the exact reason if it is not available."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.toolchain.progress import Lines
from tests.openstack import catalogue, neighbours, services, world
from tests.openstack.installed import NotToBeHad, installed


@dataclass(frozen=True)
class OpenStack:
    services: services.Services
    neighbours: neighbours.Neighbours
    keystone: catalogue.Keystone

    def project(self, folder: Path) -> AbstractContextManager[world.World]:
        return world.in_project(self.services, self.neighbours, self.keystone, folder)


def started(state: Path) -> Iterator[OpenStack]:
    report = Lines(lambda text: print(f"openstack services: {text}", file=sys.__stderr__, flush=True))
    try:
        environment = installed(report)
    except NotToBeHad as error:
        pytest.skip(f"keystone and Magnum cannot be installed here: {error}")
    with neighbours.serving() as beside, services.running(environment, state) as running:
        yield OpenStack(running, beside, catalogue.furnish(running, beside))
