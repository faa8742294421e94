#!/usr/bin/python3
"""Plays nvidia-persistenced and the fabric manager, which run if the loaded driver has their version."""

from __future__ import annotations

import os
import signal
import socket
import sys

import machine


def main() -> int:
    name = sys.argv[1]
    if not machine.load():
        print("Failed to query NVIDIA devices: the driver is not loaded", file=sys.stderr)
        return 1
    driver = machine.read(machine.LOADED)["version"]
    if name == "fabricmanager" and driver != sys.argv[2]:
        print(
            f"fabric manager NVIDIA GPU driver interface version {sys.argv[2]} don't match with "
            f"driver version {driver}. Please update with matching NVIDIA driver package.",
            file=sys.stderr,
        )
        return 1
    if name == "persistenced":
        machine.DAEMON.touch()  # systemd removes its folder when the service stops
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
