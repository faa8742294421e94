"""``python -m gpuform ENGINE_ADDRESS``: the component plugin, where language hosts look for one.

The command line is ``gpuform``, not this.
"""

from gpuform.plugins.package import main

main()
