"""The plugin ``pulumi-resource-gpuform``, as the engine starts it."""

import asyncio

from gpuform.provider.base import serve_provider
from gpuform.provider.own.provider import GpuformProvider


def main() -> None:
    asyncio.run(serve_provider(GpuformProvider))


if __name__ == "__main__":
    main()
