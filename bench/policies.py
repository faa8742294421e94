"""A preview of aws-prod with the policy pack, beside the same preview without it.

    python -m bench.policies [ROUNDS]

Both run offline on one control plane, in turns, so that other load affects both alike. The aim is at most
1.5x.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from lab.rehearse.plane import preview_base
from lab.toolchain import Toolchain

HERE = Paths.here()
STACK = "aws-prod"


def seconds(engine: Engine, packs: list[Path]) -> float:
    began = time.monotonic()
    result = engine.preview(STACK, on_event=lambda event: None, policy_packs=packs)
    assert result.changes["create"] > 100
    return time.monotonic() - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        paths = replace(HERE, state=Path(folder))
        with preview_base(paths, Toolchain(paths), STACK, None, say=lambda text: None) as base:
            engine = Engine(base.paths, Toolchain(paths), say=lambda text: None, offline=True)
            seconds(engine, [])  # the first one creates folders and bytecode
            without, with_pack = [], []
            for _ in range(rounds):
                without.append(seconds(engine, []))
                with_pack.append(seconds(engine, [HERE.root / "policies"]))
    plain, with_policies = statistics.median(without), statistics.median(with_pack)
    print(f"preview of {STACK}, medians of {rounds}")
    print(f"without the pack {plain:6.1f} s")
    print(f"with the pack    {with_policies:6.1f} s")
    print(f"ratio            {with_policies / plain:6.2f}   (aim: 1.50)")


if __name__ == "__main__":
    main()
