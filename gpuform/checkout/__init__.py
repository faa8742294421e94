"""Paths, stack files, locks of the state and errors."""
