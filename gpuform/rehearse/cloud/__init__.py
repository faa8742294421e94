"""AWS as a rehearsal plays it: moto answers, and what moto does not know is added here.

Simulated: everything that is AWS. What Karpenter asks of it, and what it makes of the answers, is real.
"""

from gpuform.rehearse.cloud.market import Bought, Market, Refused, Shortage
from gpuform.rehearse.cloud.server import Cloud

__all__ = ["Bought", "Cloud", "Market", "Refused", "Shortage"]
