"""Which sharing, which layouts and how many GPUs hold given demands, and the proof that fewer will not do.

Pure: no cluster, no cloud, no engine.
"""
