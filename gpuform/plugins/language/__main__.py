"""``python -m gpuform.plugins.language [flags] ENGINE_ADDRESS``, as the engine starts a language host."""

from __future__ import annotations

import asyncio
import signal
import sys
import types

from pulumi.runtime.proto import language_pb2_grpc

from gpuform.plugins import base

from .host import LanguageHost


def main() -> None:
    """Serve one engine until it goes away; the address comes last, after flags that are of no use here."""
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    host = LanguageHost(addresses[-1] if addresses else "")
    base.signal = types.SimpleNamespace(
        SIGINT=signal.SIGINT,
        SIGTERM=signal.SIGTERM,
        SIG_IGN=0,
        signal=lambda s, h: asyncio.get_running_loop().add_signal_handler(
            s, lambda: signal.raise_signal(signal.SIGTERM)
        ),
    )  # TEMPORARY
    asyncio.run(
        base.serve(lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server))
    )


main()
