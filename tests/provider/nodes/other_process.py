"""A relayout in a separate process, to be killed: ``other_process KUBECONFIG SELECTOR``."""

from __future__ import annotations

import asyncio
import sys

from gpuform.provider.handler import Call, Engine
from gpuform.provider.own.provider import Own

INPUTS = {"config": "large", "offers": {"nvidia.com/mig-3g.20gb": 2}, "timeoutSeconds": 60}


async def main(kubeconfig: str, selector: str) -> None:
    engine = Engine()
    handler = Own(engine).handler("gpuform:nodes:MigLayout")
    call = Call("urn:pulumi:dev::t::MigLayout::other", "MigLayout", "other", engine, asyncio.Event())
    await handler.create(call, {"kubeconfig": kubeconfig, "selector": selector, **INPUTS})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
