"""``python -m gpuform ENGINE_ADDRESS``: the plugin, at the path where language hosts expect it.

The command line is ``gpuform``, not this.
"""

from gpuform.provider.own.__main__ import main

main()
