"""``python -m gpuform ENGINE_ADDRESS``: the component plugin, at the path where language hosts expect it.

The command line is ``gpuform``, not this.
"""

from gpuform.provider.package import main

main()
