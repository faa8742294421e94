"""Hosts that boot systemd on this machine, reached by ssh, to test the preparation of own hosts."""

from tests.bed.bed import Bed, sweep
from tests.bed.host import Host
from tests.bed.refusal import Refused

__all__ = ["Bed", "Host", "Refused", "sweep"]
