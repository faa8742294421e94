"""What acts in a cluster where pods run no code: Karpenter and the readiness gate, beside it as processes."""

from gpuform.rehearse.gate import readiness_gate
from gpuform.rehearse.karpenter import Karpenter, karpenter

__all__ = ["Karpenter", "karpenter", "readiness_gate"]
