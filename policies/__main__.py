"""What the engine runs: ``pulumi preview --policy-pack policies``."""

from policies.pack import pack

pack()
