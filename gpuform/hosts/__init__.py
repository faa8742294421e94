"""Own hosts: playbooks run over ssh, with a result for each host and nothing left behind."""

from gpuform.hosts.events import Event, HostResult, Outcome
from gpuform.hosts.runner import run

__all__ = ["Event", "HostResult", "Outcome", "run"]
