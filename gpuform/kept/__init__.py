"""What the keepers beside the control plane have alike: a question to the server, a program kept running.

Standard library and yaml alone: a keeper is always there, and mostly has nothing to do.
"""
