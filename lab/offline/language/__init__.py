"""Stand-in for ``pulumi-language-python``: runs Python programs, policy packs and component plugins.

The official host ships next to the official ``pulumi`` binary and cannot be built from a Go module; if it is
installed, it is used instead of this package.
"""
