"""RabbitMQ from Debian's packages: downloaded and unpacked, never installed, run as a child on loopback.

The packages' scripts use /usr/lib/erlang and /etc/rabbitmq, so the virtual machine is started without
them. epmd, which Erlang otherwise leaves behind as a daemon, is a separate child on its own port.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.toolchain.progress import Reporter

PACKAGES = (
    "rabbitmq-server",
    *(
        f"erlang-{name}"
        for name in (
            "base",
            "asn1",
            "crypto",
            "eldap",
            "inets",
            "mnesia",
            "os-mon",
            "parsetools",
            "public-key",
            "runtime-tools",
            "ssl",
            "syntax-tools",
            "tools",
            "xmerl",
        )
    ),
)
_FETCH_S = 120
_IMPATIENT = ("-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10")


class NoPackages(Exception):
    """Why the packages cannot be had here."""


def unpack(target: Path, scratch: Path, report: Reporter) -> None:
    """Download the packages and unpack them below ``target``; raises NoPackages with apt's message."""
    scratch.mkdir()
    report.line(f"apt-get download {PACKAGES[0]} and {len(PACKAGES) - 1} packages of Erlang")
    try:
        _run(("apt-get", *_IMPATIENT, "--quiet", "download", *PACKAGES), scratch)
    except NoPackages:
        if os.geteuid() != 0:
            raise
        _run(("apt-get", *_IMPATIENT, "--quiet", "update"), scratch)
        _run(("apt-get", *_IMPATIENT, "--quiet", "download", *PACKAGES), scratch)
    for file in sorted(scratch.glob("*.deb")):
        _run(("dpkg-deb", "--extract", str(file), str(target)), scratch)


def epmd(root: Path) -> Sequence[str]:
    return (str(_machine(root) / "bin/epmd"),)


def server(root: Path) -> Sequence[str]:
    """Command of RabbitMQ, in the foreground; everything else comes from the environment."""
    return (
        str(_machine(root) / "bin/erlexec"),
        *("-noinput", "-start_epmd", "false", "+W", "w", "+sbwt", "none"),
        *("-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-boot", "start_sasl"),
        *("-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false", "-s", "rabbit", "boot"),
    )


def environment(root: Path, state: Path, port: int, distribution: int, names: int) -> Mapping[str, str]:
    """Environment of both: they write only below ``state``, and use three ports on loopback."""
    machine = _machine(root)
    home = state / "home"
    home.mkdir(parents=True, exist_ok=True)
    server = next((root / "usr/lib/rabbitmq/lib").iterdir())
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),  # for the cookie
        "ROOTDIR": str(machine.parent),
        "BINDIR": str(machine / "bin"),
        "EMU": "beam",
        "PROGNAME": "erl",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "ERL_LIBS": str(server / "plugins"),
        "SYS_PREFIX": str(state),
        "RABBITMQ_HOME": str(server),
        "RABBITMQ_NODENAME": "played@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(state / "mnesia"),
        "RABBITMQ_LOG_BASE": str(state / "log"),
        "RABBITMQ_PLUGINS_DIR": str(server / "plugins"),
        "RABBITMQ_ENABLED_PLUGINS": "",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(state / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(state / "rabbitmq"),
        "RABBITMQ_PID_FILE": str(state / "rabbitmq.pid"),
    }


def _machine(root: Path) -> Path:
    return next((root / "usr/lib/erlang").glob("erts-*"))


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPackages(f"{command[0]}: {error}") from error
    if done.returncode:
        words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NoPackages(f"{command[0]}: {words[-1] if words else f'ended with {done.returncode}'}")
