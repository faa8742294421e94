"""The plugin ``pulumi-resource-gpuform``, as the engine starts it."""

import asyncio

from gpuform.plugins.base import serve_provider
from gpuform.plugins.nodes.provider import Nodes

if __name__ == "__main__":
    asyncio.run(serve_provider(Nodes))
