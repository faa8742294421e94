"""The plugin ``pulumi-resource-aws`` of offline runs, as the engine starts it."""

import asyncio

from gpuform.provider.base import serve_provider
from lab.offline.aws.provider import OfflineAws

if __name__ == "__main__":
    asyncio.run(serve_provider(OfflineAws))
