"""Requests to OpenStack's APIs with the caller's own credentials."""
