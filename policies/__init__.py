"""The policy pack: rules over resources, for the engine and for rendered manifests.

It repeats the labels, taints and versions that it checks, and imports neither ``infra`` nor ``components``: a
rule that took its key from the code it checks would agree with any mistake in it.
"""
