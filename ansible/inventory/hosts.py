#!/usr/bin/env python3
"""The inventory of a stack, derived from the same environment as everything else.

GPUFORM_STACK_FILE names the file, or GPUFORM_STACK the stack; onprem-dev if neither is given. Bad input
prints one line on standard error, with exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from infra.config import load  # noqa: E402  (Ansible starts this file from anywhere)
from infra.inventory import inventory, mark_unsafe, to_json  # noqa: E402
from infra.model.base.errors import InputError  # noqa: E402


def stack_file() -> Path:
    """The stack file that the environment variables name."""
    given = os.environ.get("GPUFORM_STACK_FILE")
    return Path(given) if given else ROOT / f"Pulumi.{os.environ.get('GPUFORM_STACK', 'onprem-dev')}.yaml"


def main() -> int:
    """Print what Ansible requests of an inventory script."""
    parser = argparse.ArgumentParser(description="Ansible inventory of a gpuform stack of own hosts.")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--list", action="store_true", help="all groups, with every host's variables")
    asked.add_argument("--host", metavar="NAME", help="the variables of one host")
    given = parser.parse_args()
    try:
        found = inventory(load(stack_file()))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    hostvars = mark_unsafe(found["_meta"]["hostvars"])
    if given.host:
        print(json.dumps(hostvars.get(given.host, {}), indent=2, sort_keys=True))
    else:
        print(to_json({**found, "_meta": {"hostvars": hostvars}}), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
