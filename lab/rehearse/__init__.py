"""Rehearsals: a whole environment and its node provisioner on this machine, before any node is paid for."""
