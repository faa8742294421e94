"""The command line."""

JSON = "gpuform.json"
"""Key of a context's meta: whether the command prints JSON."""
