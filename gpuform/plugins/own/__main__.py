"""The plugin ``pulumi-resource-gpuform``, as the engine starts it."""

import asyncio

from gpuform.plugins.base import serve_provider
from gpuform.plugins.own.provider import Own


def main() -> None:
    asyncio.run(serve_provider(Own))


if __name__ == "__main__":
    main()
