"""The MIG table of a declared GPU: profiles, their slices, memory and placements."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.model.base import Flag, Model, option, required
from infra.model.errors import InputError
from infra.model.mig import Geometry, Profile

_PROFILE = re.compile(r"([1-9])g\.([1-9][0-9]*)gb(\+me|\+gfx|\+me\.all|-me)?")
_Slices = Annotated[int, Field(strict=True, ge=1, le=16)]
_MAX_ROUNDING = 0.05
"""How far a name may be from its share of the memory: an H200's 3g.71gb has 70.2 GiB."""
_MIN_SHARE = 0.85
"""Least part of its share that NVML reports: 0.91 for an H200's 1g.18gb."""


class OwnProfile(Model):
    """A MIG profile, as ``nvidia-smi mig -lgip`` and ``-lgipp`` list it."""

    compute: _Slices = required("Compute slices.")
    memory: _Slices = required("Memory slices.")
    starts: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, le=15)], ...],
        AfterValidator(lambda starts: tuple(sorted(set(starts)))),
    ] = required("Memory slices at which it may start, from 0.", min_length=1)
    memory_mib: Annotated[int, Field(strict=True, ge=1, le=4194304)] | None = option(
        "Memory in MiB that nvidia-smi reports for a slice; its share of the GPU if left out."
    )
    media: Flag = option("Has the media engines, which only one slice can have (+me).", False)


class OwnMig(Model):
    """MIG slices of the whole GPU, and its profiles."""

    compute: _Slices = required("Compute slices of the GPU.")
    memory: _Slices = required("Memory slices of the GPU.")
    profiles: dict[str, OwnProfile] = required(
        "Profiles by name, for example 3g.20gb.", min_length=1, max_length=32
    )

    @property
    def geometry(self) -> Geometry:
        """The table in the catalogue's form, the smallest profile first."""
        profiles = [
            Profile(name, item.compute, item.memory, item.starts, item.media, item.memory_mib or 0)
            for name, item in self.profiles.items()
        ]
        profiles.sort(key=lambda item: (item.compute, item.memory, item.media, item.name))
        return Geometry(self.compute, self.memory, tuple(profiles))

    def check(self, memory_mib: int) -> None:
        """Refuse a table that contradicts itself or the GPU's memory; paths start at the GPU."""
        for name, profile in self.profiles.items():
            path = f"mig.profiles.{name}"
            self._check_slices(path, profile)
            share = memory_mib * profile.memory / self.memory
            self._check_name(path, name, profile, share)
            if profile.memory_mib and not _MIN_SHARE * share <= profile.memory_mib <= share:
                fact = (
                    f"{profile.memory} of {self.memory} memory slices of the GPU's {memory_mib} MiB are "
                    f"{share:.0f} MiB, and NVML reports slightly less"
                )
                raise InputError(f"{path}.memory_mib", fact, "correct it, memory or the GPU's memory_mib")

    def _check_slices(self, path: str, profile: OwnProfile) -> None:
        for key in ("compute", "memory"):
            takes, has = getattr(profile, key), getattr(self, key)
            if takes > has:
                fact = f"takes {takes} {key} slices, and the GPU has {has}"
                raise InputError(f"{path}.{key}", fact, f"use {has} or fewer, or correct mig.{key}")
        last = self.memory - profile.memory
        if profile.starts[-1] > last:
            fact = f"{profile.memory} of {self.memory} memory slices cannot start at {profile.starts[-1]}"
            raise InputError(f"{path}.starts", fact, f"use {last} or less")

    def _check_name(self, path: str, name: str, profile: OwnProfile, share: float) -> None:
        match = _PROFILE.fullmatch(name)
        if not match:
            raise InputError(path, f"{name!r} is not the name of a profile", "write it as 3g.20gb")
        compute, gib = int(match[1]), int(match[2])
        if compute != profile.compute:
            fact = f"the name says {compute} compute slices, and compute {profile.compute}"
            raise InputError(f"{path}.compute", fact, "give both the same number")
        if abs(gib - share / 1024) > max(1.0, _MAX_ROUNDING * share / 1024):
            fact = (
                f"the name says {gib} GiB, and {profile.memory} of {self.memory} memory slices are "
                f"{share / 1024:.1f} GiB"
            )
            raise InputError(path, fact, "correct the name, memory or the GPU's memory_mib")
        if profile.media != (match[3] in ("+me", "+me.all")):
            fact = "exactly the profiles with +me or +me.all in their name have the media engines"
            raise InputError(f"{path}.media", fact, "correct it, or the name")
