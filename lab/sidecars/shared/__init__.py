"""Shared by the keepers beside the control plane: API requests, and a program that is kept running.

Standard library and yaml alone: a keeper always runs and is mostly idle.
"""
