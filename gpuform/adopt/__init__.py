"""Declares a cluster that others run: reads its objects, finds pools, writes an environment."""
