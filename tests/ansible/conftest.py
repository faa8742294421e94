"""Beds of booted hosts for the tests: each its own, all of them gone with the session."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.bed import Bed, Refused, refusal, sweep


class Beds(Protocol):
    """Boots a new bed of so many hosts; it is taken down with the session, or by its own ``down`` before."""

    def __call__(self, hosts: int = 1) -> Bed: ...


@pytest.fixture(scope="session")
def bed() -> Iterator[Beds]:
    """A factory of beds; skips where this machine boots no hosts, with the reason."""
    try:
        refusal.check()
    except Refused as refused:
        pytest.skip(f"no hosts: {refused}")
    sweep()
    made: list[Bed] = []
    numbers = itertools.count(1)

    def boot(hosts: int = 1) -> Bed:
        new = Bed(f"test-{os.getpid()}-{next(numbers)}")
        made.append(new)
        try:
            new.up(hosts, owner=os.getpid())
        except Refused as refused:
            pytest.skip(f"no hosts: {refused}")
        return new

    try:
        yield boot
    finally:
        for each in made:
            each.down()
