"""One bridge per bed with its own /24; the bridge name is the claim, since the kernel gives it only once."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

SECOND = range(64, 128)  # 10.64.0.0/10: not common in clusters and clouds


class Taken(Exception):
    """The subnet is in use by another bed."""


@dataclass(frozen=True)
class Subnet:
    """10.``second``.``third``.0/24."""

    second: int
    third: int

    @property
    def bridge(self) -> str:
        """At most 15 characters, the kernel's limit."""
        return f"gpfbed{self.second}-{self.third}"

    @property
    def gateway(self) -> str:
        return self.address(1)

    def address(self, last: int) -> str:
        return f"10.{self.second}.{self.third}.{last}"


def claim(folder: Path) -> Subnet:
    """Make a bridge for the bed in ``folder``, on the subnet derived from the path or the next free one."""
    start = int.from_bytes(hashlib.sha256(str(folder).encode()).digest()[:4]) % (len(SECOND) * 256)
    for step in range(len(SECOND) * 256):
        at = (start + step) % (len(SECOND) * 256)
        subnet = Subnet(SECOND[at // 256], at % 256)
        try:
            _make(subnet, folder)
        except Taken:
            continue
        return subnet
    raise RuntimeError("every subnet of 10.64.0.0/10 is taken")


def ensure(subnet: Subnet, folder: Path) -> None:
    if not Path(f"/sys/class/net/{subnet.bridge}").exists():
        _make(subnet, folder)


def _make(subnet: Subnet, folder: Path) -> None:
    if _routed(subnet):
        raise Taken
    done = subprocess.run(
        ["ip", "link", "add", "name", subnet.bridge, "type", "bridge"], capture_output=True, text=True
    )
    if done.returncode:
        if "File exists" in done.stderr:
            raise Taken
        raise RuntimeError(f"ip link add {subnet.bridge}: {done.stderr.strip()}")
    ip("link", "set", subnet.bridge, "alias", alias(folder))
    ip("addr", "add", f"{subnet.gateway}/24", "dev", subnet.bridge)
    ip("link", "set", subnet.bridge, "up")


def _routed(subnet: Subnet) -> bool:
    ours = ipaddress.ip_network(subnet.address(0) + "/24")
    routes = (route["dst"] for route in json.loads(ip("-json", "-4", "route")))
    return any(ours.overlaps(ipaddress.ip_network(dst)) for dst in routes if dst != "default")


def alias(folder: Path) -> str:
    """A bridge's alias, which names its bed; the kernel allows 255 characters."""
    return f"gpuform bed {hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def release(folder: Path) -> None:
    """Remove every bridge of the bed in ``folder`` and the interfaces on it."""
    for link in json.loads(ip("-json", "-details", "link", "show", "type", "bridge") or "[]"):
        if link.get("ifalias") == alias(folder):
            for port in json.loads(ip("-json", "link", "show", "master", link["ifname"]) or "[]"):
                ip("link", "del", port["ifname"], check=False)
            ip("link", "del", link["ifname"], check=False)


def ip(*args: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *args], capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout
