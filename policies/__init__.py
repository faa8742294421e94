"""The policy pack: rules over resources, for the engine and for what is rendered.

It spells out the labels, taints and versions that it judges by on its own and imports neither ``infra`` nor
``components``: a rule that took its key from what it judges would agree with any mistake in it.
"""
