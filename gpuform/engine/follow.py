"""Runs an official plugin so that it ends with the engine: ``python follow.py PLUGIN ARGUMENTS...``.

On its own it survives a kill -9 of the engine: minutes later it completes the installation of a Helm release
that is not in the state. Only the standard library is imported.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys

FORCE_VARIABLE = "GPUFORM_FORCE_FIELDS"
"""Set for a run that takes declared fields back from other managers (`conflicts`)."""
_TICK_S = 0.5
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(command: list[str]) -> int:
    """Run the plugin and return its exit code; SIGINT and SIGTERM are forwarded to it."""
    parent = os.getppid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def end_with_this() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    force = {"PULUMI_K8S_ENABLE_PATCH_FORCE": "true"} if FORCE_VARIABLE in os.environ else {}
    child = subprocess.Popen(command, env=os.environ | force, preexec_fn=end_with_this)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: child.send_signal(received))
    while child.poll() is None:
        if os.getppid() != parent:
            child.kill()
        try:
            child.wait(_TICK_S)
        except subprocess.TimeoutExpired:
            continue
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
