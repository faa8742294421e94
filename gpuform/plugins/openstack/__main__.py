"""``python -m gpuform.plugins.openstack``: what the engine starts as pulumi-resource-openstack."""

import asyncio

from gpuform.plugins.base import serve_provider
from gpuform.plugins.openstack.provider import OpenstackProvider

if __name__ == "__main__":
    asyncio.run(serve_provider(OpenstackProvider))
