"""Becomes another program that ends with the process that started this one and accepts no connections.

    no_open_ports.py PARENT PROGRAM [ARGUMENT...]

PARENT is the process id of the starting process. Karpenter serves metrics and health on every address of the
machine and has no option to turn that off. Here its listen call succeeds and does nothing, so that its ports
stay closed without an error. Linux on amd64 and arm64; run as a file, standard library alone.
"""

import ctypes
import errno
import os
import platform
import signal
import struct
import sys

# prctl(2), linux/prctl.h.
_SET_PARENT_DEATH_SIGNAL, _SET_SECCOMP, _SET_NO_NEW_PRIVILEGES = 1, 22, 38
_FILTER_MODE = 2
# Machine -> its number in linux/audit.h, and those of listen, accept and accept4 in its table of calls.
_CALLS = {"x86_64": (0xC000003E, 50, 43, 288), "aarch64": (0xC00000B7, 201, 202, 242)}
# linux/bpf_common.h and linux/seccomp.h.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_OFFSET_CALL, _OFFSET_MACHINE = 0, 4


def _prctl(*arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [a if not isinstance(a, int) else ctypes.c_ulong(a) for a in arguments]
    padded += [ctypes.c_ulong(0)] * (5 - len(padded))
    if libc.prctl(*padded):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def end_with(parent: int) -> None:
    """Have the kernel kill this process, also after exec, when the thread that started it ends."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != parent:  # it had ended before that call
        sys.exit("the parent process has ended")


def close_ports() -> None:
    """From now on, irrevocably, listen succeeds and does nothing, and accept fails with EAGAIN."""
    try:
        machine, listen, accept, accept4 = _CALLS[platform.machine()]
    except KeyError:
        sys.exit(f"no_open_ports.py knows no system calls of {platform.machine()}")
    rows = [
        (_LOAD, 0, 0, _OFFSET_MACHINE),
        (_JUMP_IF_EQUAL, 0, 4, machine),
        (_LOAD, 0, 0, _OFFSET_CALL),
        (_JUMP_IF_EQUAL, 3, 0, listen),
        (_JUMP_IF_EQUAL, 3, 0, accept),
        (_JUMP_IF_EQUAL, 2, 0, accept4),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO),
        (_RETURN, 0, 0, _ERRNO | errno.EAGAIN),
    ]
    # struct sock_filter, and struct sock_fprog, which points to the rows.
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    program = struct.pack("HP", len(rows), ctypes.addressof(filters))
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)
    _prctl(_SET_SECCOMP, _FILTER_MODE, program)


def main() -> None:
    """Never returns: becomes the program, or exits with an error message."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    end_with(parent)
    close_ports()
    os.execv(program, sys.argv[2:])  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
