"""Previews a change: its effects on nodes and pods, on the bill, and on policies."""
