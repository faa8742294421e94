"""``python -m gpuform.cli.preflight_gate CHECKOUT STACK``: run by ``gpuform local env``'s pulumi.

Prints on stderr what did not pass (stdout is pulumi's). Exit code 1 if a check failed, 2 for an invalid stack
file; 0, without output, for a stack that has no account.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths


def main(root: str, stack: str) -> int:
    from rich.console import Console

    from gpuform.checkout.stacks import declared
    from gpuform.cli.output import require_passed

    try:
        paths = replace(Paths.here(), root=Path(root))
        require_passed(declared(stack, paths), paths, stack, Console(stderr=True, highlight=False))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Failure as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
