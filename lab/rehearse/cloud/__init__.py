"""The simulated AWS of a rehearsal: moto answers, and what moto lacks is added here.

Simulated: all of AWS. Karpenter's requests, and what it makes of the answers, are real.
"""
