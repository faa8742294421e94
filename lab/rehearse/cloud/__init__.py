"""The simulated AWS of a rehearsal: moto answers, and what moto lacks is added here.

Simulated: all of AWS. Karpenter's requests, and what it makes of the answers, are real.
"""

from lab.rehearse.cloud.market import Bought, Market, Refused, Shortage
from lab.rehearse.cloud.server import Cloud

__all__ = ["Bought", "Cloud", "Market", "Refused", "Shortage"]
