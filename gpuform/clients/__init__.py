"""Clients of AWS and OpenStack."""
