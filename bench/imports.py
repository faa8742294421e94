"""Import time of the local program, beside ``import pulumi`` in the same run.

    python bench/imports.py [RUNS]

Each import runs in a fresh interpreter; the figure is the interpreter's whole life, as a user waits for it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

SUBJECTS = {
    "python -c pass": "pass",
    "import pulumi": "import pulumi",
    "the local program's imports": "import infra.__main__",
    "gpuform --help": "import sys; sys.argv[1:] = ['--help']; from gpuform.cli.main import main; main()",
}


def seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for code in SUBJECTS.values():
        seconds(code)  # warms bytecode and page cache for all subjects
    # Interleaved, so that a slow moment of the machine hits every subject.
    times: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    for _ in range(runs):
        for name, code in SUBJECTS.items():
            times[name].append(seconds(code))
    base = statistics.median(times["import pulumi"])
    print(f"{'subject':30} {'min':>7} {'median':>7} {'max':>7}   against import pulumi")
    for name, durations in times.items():
        middle = statistics.median(durations)
        print(f"{name:30} {min(durations):7.3f} {middle:7.3f} {max(durations):7.3f}   {middle / base:5.2f}x")


if __name__ == "__main__":
    main()
