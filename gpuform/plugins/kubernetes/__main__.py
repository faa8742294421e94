"""``python -m gpuform.plugins.kubernetes``: what the engine starts as pulumi-resource-kubernetes."""

import asyncio

from gpuform.plugins.base import serve_provider
from gpuform.plugins.kubernetes.provider import KubernetesProvider

if __name__ == "__main__":
    asyncio.run(serve_provider(KubernetesProvider))
