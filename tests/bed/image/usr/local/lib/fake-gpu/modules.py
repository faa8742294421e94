#!/usr/bin/python3
"""Plays lsmod, modinfo, modprobe, rmmod and dkms for the driver's modules; the kernel here has none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import machine


def lsmod() -> int:
    print("Module                  Size  Used by")
    if machine.LOADED.exists():
        for name in machine.NVIDIA:
            print(f"{name:<19} {4096000:>9}  0")
    if machine.nouveau():
        print(f"{'nouveau':<19} {2445312:>9}  0")
    for path in sorted(machine.OTHERS.glob("*")):
        print(f"{path.name:<19} {16384:>9}  0")
    return 0


def modinfo(args: list[str]) -> int:
    names = [arg for arg in args if not arg.startswith("-")]
    field = ""
    for flag in ("-F", "--field"):
        if flag in args:
            field = args[args.index(flag) + 1]
            names.remove(field)
    for name in names:
        if name.replace("-", "_") not in machine.NVIDIA or not machine.MODULE.exists():
            print(f"modinfo: ERROR: Module {name} not found.", file=sys.stderr)
            return 1
        module = machine.read(machine.MODULE)
        path = f"/lib/modules/{os.uname().release}/updates/dkms/{name.replace('_', '-')}.ko"
        facts = {"filename": path, "version": module["version"], "license": module["licence"]}
        for key, value in facts.items():
            if not field:
                print(f"{key + ':':<16}{value}")
            elif field == key:
                print(value)
    return 0


def modprobe(args: list[str]) -> int:
    names = [arg.replace("-", "_") for arg in args if not arg.startswith("-")]
    remove = any(arg in ("-r", "--remove") for arg in args)
    dry = any(arg in ("-n", "--dry-run", "--show") for arg in args)
    many = any(arg in ("-a", "--all", "-r", "--remove") for arg in args)
    for name in names if many else names[:1]:  # the rest are a module's parameters
        if dry:
            continue
        if name in machine.NVIDIA and not _nvidia(name, remove):
            return 1
        if name == "nouveau":
            _nouveau(remove)
        elif name not in machine.NVIDIA:
            _other(name, remove)
    return 0


def _nvidia(name: str, remove: bool) -> bool:
    if remove:
        if machine.persistence():
            print(f"modprobe: FATAL: Module {name} is in use.", file=sys.stderr)
            return False
        if name == "nvidia":
            machine.LOADED.unlink(missing_ok=True)
        return True
    if not machine.MODULE.exists():
        where = f"/lib/modules/{os.uname().release}"
        print(f"modprobe: FATAL: Module {name} not found in directory {where}", file=sys.stderr)
        return False
    if not machine.load():
        print(f"modprobe: ERROR: could not insert '{name}': No such device", file=sys.stderr)
        return False
    return True


def _nouveau(remove: bool) -> None:
    if remove:
        machine.KEPT_OUT.parent.mkdir(parents=True, exist_ok=True)
        machine.KEPT_OUT.touch()
    else:
        machine.KEPT_OUT.unlink(missing_ok=True)
        machine.NOUVEAU.touch()


def _other(name: str, remove: bool) -> None:
    path = machine.OTHERS / Path(name).name
    if remove:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def dkms(args: list[str]) -> int:
    module = machine.read(machine.MODULE)
    if args[:1] == ["status"] and module:
        print(f"nvidia/{module['version']}, {os.uname().release}, {os.uname().machine}: installed")
    return 0


def main() -> int:
    command, args = Path(sys.argv[1]).name, sys.argv[2:]
    if command == "rmmod":
        command, args = "modprobe", ["-r", *args]
    return {"lsmod": lambda _: lsmod(), "modinfo": modinfo, "modprobe": modprobe, "dkms": dkms}[command](args)


if __name__ == "__main__":
    sys.exit(main())
