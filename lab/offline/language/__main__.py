"""``python -m lab.offline.language [flags] ENGINE_ADDRESS``, as the engine starts a language host."""

from __future__ import annotations

import asyncio
import logging
import sys

from gpuform.provider.base import serve
from gpuform.provider.protocol import language_pb2_grpc

from .host import LanguageHost


def main() -> None:
    """Serve one engine until it ends; its address is the last argument, after flags that are ignored."""
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    host = LanguageHost(addresses[-1] if addresses else "")
    # asyncio warns of children that end while it shuts down; the engine would show that as program output.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)))


main()
