"""``python3 -m gpuform.checkout.stack_names``: the stacks of this checkout as a JSON list, for CI jobs.

Needs only Python: it runs before anything is installed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""A stack's name, as the engine allows it, and short enough for an artifact's name."""

_STACK_FILE = re.compile(r"Pulumi\.(?P<stack>.+)\.yaml")


def list_stack_names(root: Path) -> list[str]:
    """Names of all stacks with a file, sorted; ValueError for a file with an invalid name."""
    names = []
    for file in sorted(root.glob("Pulumi.*.yaml")):
        match = _STACK_FILE.fullmatch(file.name)
        if match is None or not NAME.fullmatch(match["stack"]):
            raise ValueError(f"{file.name!r}: not a valid stack name; rename the file")
        names.append(match["stack"])
    return names


if __name__ == "__main__":
    try:
        print(json.dumps(list_stack_names(Path.cwd())))
    except ValueError as error:
        sys.exit(f"error: {error}")
