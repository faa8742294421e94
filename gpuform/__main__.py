"""``python -m gpuform ENGINE_ADDRESS``: the component plugin, at the path where language hosts expect it.

The command line is ``gpuform``, not this.
"""

from infra.package import main

main()
