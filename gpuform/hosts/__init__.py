"""Own hosts: runs playbooks over ssh, with a result for each host, and leaves nothing behind."""

from gpuform.hosts.events import Event, HostResult, Outcome
from gpuform.hosts.runner import run

__all__ = ["Event", "HostResult", "Outcome", "run"]
