"""What a terminal shows of the main commands at 80 and 120 columns, against screens/*.txt.

GPUFORM_UPDATE_GOLDEN=1 writes the files again; read them as a user would before committing.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from itertools import groupby
from pathlib import Path

import pytest

from tests.journey.conftest import Checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

GOLDEN = Path(__file__).with_name("screens")
ROWS = 40
VARYING = (
    (r"\d+\.\d s\b", "N.N s"),
    (r"\b\d+ s total", "N s total"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-xxxxx"),  # end of a pod's name
    (r"\b(t4-shared|cpu)-\d(?= +Running)", r"\1-N"),
    (r"(python +)\d+\.\d+\.\d+", r"\1VERSION"),
)
MEASURED = ((r"\d+(\.\d+)?(?= %| W\b| GiB| of \d+\.)", "#"), (r"\b0\.\d+", "#"), (r" {2,}", "  "))
VERBS = ("created ", "updated ", "create ", "update ")


def screen(checkout: Checkout, columns: int, *words: str) -> str:
    """What is on the terminal after the command, lines that scrolled away included, without colours."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    # A worker of pytest-xdist has COLUMNS, which goes before the terminal's own size.
    env = {key: value for key, value in checkout.env.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        checkout.command(*words),
        cwd=checkout.paths.root,
        env=env | {"TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    written = b""
    try:
        while data := os.read(controller, 65536):
            written += data
    except OSError:  # the other end is closed
        pass
    os.close(controller)
    text = rendered(written.decode())
    assert process.wait() in (0, 3), text
    return text


def rendered(written: str) -> str:
    """The lines after moves of the cursor up and to the left, and erased lines: what rich uses."""
    lines, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x1b]", written):
        if token == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif token == "\r":
            column = 0
        elif token[0] == "\x1b":
            if token[-1] == "A":
                row = max(0, row - int(token[2:-1] or 1))
            elif token[-1] == "K":
                lines[row] = "" if token == "\x1b[2K" else lines[row][:column]
        else:
            lines[row] = lines[row].ljust(column)[:column] + token + lines[row][column + 1 :]
            column += 1
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


@pytest.mark.parametrize("columns", [80, 120])
def test_screens(fresh: Checkout, columns: int) -> None:
    def add_pool() -> None:
        fresh.change(lambda env: env["pools"].append({"name": "new", "machine": "g2.5xlarge", "nodes": 1}))

    found = {"up-new": screen(fresh, columns, "up", "local")}
    found["up-unchanged"] = screen(fresh, columns, "up", "local")
    add_pool()
    found["preview"] = screen(fresh, columns, "preview", "local")
    found["up-one-pool"] = screen(fresh, columns, "up", "local")
    fresh.kubectl("-n", "neighbours-mig", "scale", "deployment/notebook", "--replicas=2")
    found["drift"] = screen(fresh, columns, "drift", "local")
    found["drift-repair"] = screen(fresh, columns, "drift", "local", "--repair")
    found["doctor"] = screen(fresh, columns, "doctor")
    until(lambda: "no measurements" not in fresh.gpuform("top").stdout, what="GPUs are measured", seconds=60)
    found["top"] = screen(fresh, columns, "top", "--pool", "a100-whole")
    assert len(found["up-unchanged"].splitlines()) <= ROWS
    assert len(found["up-one-pool"].splitlines()) <= ROWS
    GOLDEN.mkdir(exist_ok=True)
    differing = []
    for name, text in found.items():
        for pattern, replacement in (*VARYING, *(MEASURED if name == "top" else ())):
            text = re.sub(pattern, replacement, text)
        text = "".join(
            "".join(sorted(group) if is_change else group)
            for is_change, group in groupby(
                text.splitlines(keepends=True), lambda line: line.startswith(VERBS)
            )
        )
        file = GOLDEN / f"{name}-{columns}.txt"
        if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
            file.write_text(text)
        if not file.exists() or file.read_text() != text:
            differing.append(f"== {file.name}\n{text}")
    assert not differing, "\n".join(differing)
