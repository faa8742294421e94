"""Rehearsals: a whole environment on this machine, with what would buy its nodes, before any is paid for."""
