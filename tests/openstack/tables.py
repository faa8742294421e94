"""Initial contents of the neighbours' stand-in: CERN's flavors, an image, networks, a key pair, quotas.

Flavors are from CERN's talk of 2024, typed independently; the sizes of m2.medium and all disks are made up,
since the talk does not give them.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

_FLAVORS = (  # name, vCPU, RAM in GiB
    ("m2.small", 1, 2),
    ("m2.medium", 2, 4),
    ("m2.large", 4, 8),
    ("g1.xlarge", 4, 16),
    ("g1.4xlarge", 16, 64),
    ("g2.xlarge", 4, 16),
    ("g2.5xlarge", 28, 168),
    ("g3.xlarge", 4, 16),
    ("g3.4xlarge", 16, 64),
    ("g4.p1.40g", 16, 120),
    ("g4.p2.40g", 32, 240),
    ("g4.p4.40g", 64, 480),
)
IMAGE = "fedora-coreos-40"
KEYPAIR = "gpu-admins"
EXTERNAL = "external"
FIXED = "cluster-net"

QUOTAS: dict[str, Row] = {
    "compute": {
        **{"instances": 100, "cores": 1000, "ram": 10_000 * 1024},
        **{"used_instances": 0, "used_cores": 0, "used_ram": 0},
    },
    "network": {"port": 500, "floatingip": 50, "used_port": 0, "used_floatingip": 0},
    "load-balancer": {"load_balancer": 10},
    "volume": {"volumes": 100, "gigabytes": 10_000, "used_volumes": 0, "used_gigabytes": 0},
}


def _flavor(number: int, name: str, vcpu: int, memory: int) -> Row:
    return {
        **{"id": f"00000000-0000-4000-8000-{number:012d}", "name": name, "vcpus": vcpu, "ram": memory * 1024},
        **{"disk": 40, "swap": 0, "OS-FLV-EXT-DATA:ephemeral": 0, "os-flavor-access:is_public": True},
        **{"OS-FLV-DISABLED:disabled": False, "rxtx_factor": 1.0, "extra_specs": {}, "links": []},
    }


def initial_tables() -> dict[str, list[Row]]:
    """The tables by name, including empty ones."""
    network = {"status": "ACTIVE", "admin_state_up": True, "shared": False}
    inside, outside = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
    subnet = "22222222-0000-4000-8000-000000000001"
    return {
        "images": [
            {
                **{"id": "33333333-0000-4000-8000-000000000001", "name": IMAGE, "status": "active"},
                **{"os_distro": "fedora-coreos", "visibility": "public", "min_disk": 10, "min_ram": 0},
                **{"size": 1, "disk_format": "qcow2", "container_format": "bare", "protected": False},
            }
        ],
        "flavors": [_flavor(number, *row) for number, row in enumerate(_FLAVORS, 1)],
        "keypairs": [
            {"id": KEYPAIR, "name": KEYPAIR, "fingerprint": "00:11", "type": "ssh", "public_key": "ssh"}
        ],
        "networks": [
            {"id": inside, "name": FIXED, "router:external": False, "subnets": [subnet], **network},
            {"id": outside, "name": EXTERNAL, "router:external": True, "subnets": [], **network},
        ],
        "subnets": [
            {
                **{"id": subnet, "name": "cluster-subnet", "network_id": inside, "cidr": "10.0.0.0/16"},
                **{"ip_version": 4, "gateway_ip": "10.0.0.1", "enable_dhcp": True},
            }
        ],
        **{
            name: []
            for name in (
                *("servers", "ports", "routers", "floating_ips", "security_groups", "extensions"),
                *("volumes", "volume_types", "stacks", "load_balancers"),
            )
        },
    }


# Root of each service -> version id, status, microversions.
VERSIONS: dict[str, tuple[str, str, str]] = {
    "/image": ("v2.16", "", ""),
    "/image/v2": ("v2.16", "", ""),
    "/compute/v2.1": ("v2.1", "2.1", "2.96"),
    "/network": ("v2.0", "", ""),
    "/network/v2.0": ("v2.0", "", ""),
    "/volume/v3": ("v3.0", "3.0", "3.71"),
    "/load-balancer": ("v2.27", "", ""),
    "/load-balancer/v2": ("v2.27", "", ""),
    "/orchestration": ("v1.0", "", ""),
}
_FOLDERS = {"/image": "v2", "/network": "v2.0", "/load-balancer": "v2", "/orchestration": "v1"}


def version(path: str, url: str) -> tuple[int, Row]:
    """A discovery document: of one version if the path names one, else the list of all."""
    ident, low, high = VERSIONS[path]
    href = f"{url}{path}/{_FOLDERS[path]}/" if path in _FOLDERS else f"{url}{path}/"
    document = {"id": ident, "status": "CURRENT", "links": [{"rel": "self", "href": href}]}
    if high:
        document |= {"version": high, "max_version": high, "min_version": low}
    return 200, {"versions": [document]} if path in _FOLDERS else {"version": document}


CATALOGUE = {
    "image": ("glance", "/image"),
    "compute": ("nova", "/compute/v2.1"),
    "network": ("neutron", "/network"),
    "block-storage": ("cinder", "/volume/v3/$(project_id)s"),
    "orchestration": ("heat", "/orchestration/v1/$(project_id)s"),
    "load-balancer": ("octavia", "/load-balancer"),
}
"""Service type -> name of the service, and its path in the stand-in."""
