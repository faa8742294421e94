"""What the engine runs: ``pulumi preview --policy-pack policies``."""

import gpuform  # noqa: F401 - finds the other packages
from policies.pack import pack

pack()
