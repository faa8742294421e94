"""Calls to AWS's APIs: what an account can provide, and what a stack has left behind in it."""
