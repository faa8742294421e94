"""OpenStack's APIs, asked with the caller's own credentials."""
