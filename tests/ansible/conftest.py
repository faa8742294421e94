"""Beds of booted hosts for the tests; all are removed at the end of the session."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from gpuform.hosts.events import Outcome
from gpuform.hosts.runner import run
from tests.bed import Bed, Refused, refusal, stack, sweep


class BedFactory(Protocol):
    """Boots a new bed of ``hosts`` hosts, removed at the end of the session or by its own ``down``."""

    def __call__(self, hosts: int = 1) -> Bed: ...


@pytest.fixture(scope="session")
def bed() -> Iterator[BedFactory]:
    """A factory of beds; skips, with the reason, if this machine cannot boot hosts."""
    try:
        refusal.check()
    except Refused as refused:
        pytest.skip(f"no hosts: {refused}")
    sweep()
    beds: list[Bed] = []
    numbers = itertools.count(1)

    def boot(hosts: int = 1) -> Bed:
        new_bed = Bed(f"test-{os.getpid()}-{next(numbers)}")
        beds.append(new_bed)
        try:
            new_bed.up(hosts, owner=os.getpid())
        except Refused as refused:
            pytest.skip(f"no hosts: {refused}")
        return new_bed

    try:
        yield boot
    finally:
        for one in beds:
            one.down()


@dataclass(frozen=True)
class PreparedHosts:
    """Two hosts after one run of site.yml: gpu-1 with a T4, gpu-2 without a GPU."""

    bed: Bed
    inventory: Mapping[str, Any]
    first: Outcome


@pytest.fixture(scope="session")
def prepared(bed: BedFactory) -> PreparedHosts:
    """Made once; a test restores its changes."""
    hosts = bed(2)
    hosts.furnish_repository()
    pools = [
        {"name": "t4", "hosts": ["gpu-1"], "gpu": {"models": ["T4"], "count": 1}},
        {"name": "cpu", "hosts": ["gpu-2"]},
    ]
    inventory = stack.listing(hosts, pools)
    return PreparedHosts(hosts, inventory, run("site.yml", inventory))
