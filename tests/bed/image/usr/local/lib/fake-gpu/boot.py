#!/usr/bin/python3
"""At boot: the kernel loads the driver on disk; MIG instances are gone, MIG mode stays."""

from __future__ import annotations

import machine

machine.RUN.mkdir(parents=True, exist_ok=True)
if machine.NOUVEAU.exists() and machine.blacklisted():
    machine.KEPT_OUT.touch()
machine.load()
left = machine.read(machine.MIG)
if left:
    machine.write(machine.MIG, {index: {"mode": gpu["mode"], "placed": []} for index, gpu in left.items()})
