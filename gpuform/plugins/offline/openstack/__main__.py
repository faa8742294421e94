"""The plugin ``pulumi-resource-openstack`` of offline runs, as the engine starts it."""

import asyncio

from gpuform.plugins.base import serve_provider
from gpuform.plugins.offline.openstack.provider import OfflineOpenstack

if __name__ == "__main__":
    asyncio.run(serve_provider(OfflineOpenstack))
