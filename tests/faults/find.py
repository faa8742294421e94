"""Plants each fault of this folder in a copy of the checkout and prints which test of the gate finds it.

``python -m tests.faults.find [NAME...]``. A patch begins with a description of the fault and, after
``Gate:``, the folders with the tests that must find it; only these run. Exit code 1 if a fault is not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def find(patch: Path) -> list[str]:
    text = patch.read_text(encoding="utf-8")
    where = re.search(r"^Gate: (.+)$", text, re.MULTILINE)
    assert where is not None, f"{patch.name}: does not say where it is to be found"
    with tempfile.TemporaryDirectory(prefix="gpuform-fault-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".venv", ".gpuform"))
        python = _environment(copy)
        subprocess.run(["git", "apply", str(patch)], cwd=copy, check=True)
        command = [str(python), "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile"]
        command += ["-m", "not nightly", *where[1].split()]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    return re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)


def _environment(copy: Path) -> Path:
    """Python of a virtual environment that imports the copy: the engine's plugins ignore PYTHONPATH."""
    made = copy / ".venv"
    shutil.copytree(sys.prefix, made, symlinks=True, copy_function=os.link)
    for file in [*(made / "bin").iterdir(), *made.glob("lib/python3*/site-packages/__editable__*")]:
        text = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
        if str(ROOT).encode() in text:
            mode = file.stat().st_mode
            file.unlink()  # a hard link to this checkout's file, which stays as it is
            file.write_bytes(text.replace(str(ROOT).encode(), str(copy).encode()))
            file.chmod(mode)
    return made / "bin" / "python"


def main(names: list[str]) -> int:
    missed = []
    for patch in sorted(HERE.glob("*.patch")):
        if names and patch.stem not in names:
            continue
        found = find(patch)
        print(f"{patch.stem}: {', '.join(found) or 'NOT FOUND'}", flush=True)
        missed += [] if found else [patch.stem]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
