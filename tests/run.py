"""Runs the suite on two workers, and each failed file once more on its own.

``python -m tests.run [OPTIONS OF PYTEST] [PATHS]``, paths last; ``-n 3`` makes it three workers. A file that
passes only alone does not fail the run, but the last line names it. Unit tests have no second try, and more
than three failed files count as real failures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from tests.tiers import FAILED

MOST = 3


def main(options: list[str]) -> int:
    os.environ["GOPROXY"] = "off"  # tests download no module
    paths = [*takewhile(lambda word: Path(word.split("::")[0]).exists(), reversed(options))]
    pytest = [sys.executable, "-m", "pytest", "-n", "2", *options[: len(options) - len(paths)]]
    code = subprocess.call([*pytest, *reversed(paths), "--dist", "loadfile", "--durations=25"])
    if code != 1:
        return code
    failed: dict[str, bool] = json.loads(Path(f".pytest_cache/v/{FAILED}").read_text(encoding="utf-8"))
    if not failed or any(failed.values()) or len(failed) > MOST:
        return code
    print(f"once more, each on its own: {', '.join(failed)}", flush=True)
    if any(subprocess.call([*pytest, "-n", "0", file]) for file in failed):
        return code
    warning = "::warning::" if os.environ.get("GITHUB_ACTIONS") else ""
    print(f"{warning}passed only alone: {', '.join(failed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
