"""Every field that matters on own hosts: its path and another value; the rendered files must then differ."""

from __future__ import annotations

from typing import Any

FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"
MIRROR: dict[str, Any] = {
    "url": "https://mirror.example/cuda",
    "suite": "./",
    "key": "mirror.asc",
    "fingerprint": FINGERPRINT,
}
RUNFILE = {"url": "https://mirror.example/a.run", "sha256": "a" * 64}

HOSTS: dict[str, Any] = {
    "name": "e",
    "cluster": {
        "kind": "hosts",
        "control_plane": ["cp-1"],
        "toolkit": {"repository": MIRROR},
        "driver": {"source": "nvidia", "version": "580.95.05", "repository": MIRROR},
        "kubeconfig": "/k",
    },
    "gpu_operator": {},
    "pools": [
        {
            "name": "a100",
            "hosts": [{"name": "gpu-1", "address": "10.0.0.1"}],
            "gpu": {"models": ["A100-40GB"], "count": 1},
            "sharing": {"kind": "mig", "layout": "all-1g.5gb"},
        },
        {
            "name": "v100",
            "hosts": ["gpu-2"],
            "gpu": {"models": ["V100"], "count": 1},
            "driver": {"source": "runfile", "version": "580.95.05", "runfile": RUNFILE},
        },
        {"name": "cpu", "hosts": ["cpu-1"]},
    ],
}

OWN = {"source": "nvidia", "version": "570.133.20"}
ROWS: dict[tuple[str, str], tuple[dict[str, Any], str, Any]] = {
    ("HostsCluster", "user"): (HOSTS, "cluster/user", "deploy"),
    ("HostsCluster", "private_key"): (HOSTS, "cluster/private_key", "~/.ssh/key"),
    ("HostsCluster", "known_hosts"): (HOSTS, "cluster/known_hosts", "~/.ssh/known"),
    ("HostsCluster", "control_plane"): (HOSTS, "cluster/control_plane", []),
    ("HostsCluster", "runtime"): (HOSTS, "cluster/runtime", "crio"),
    ("HostsCluster", "runtime_version"): (HOSTS, "cluster/runtime_version", "1.7"),
    ("HostsCluster", "toolkit"): (HOSTS, "cluster/toolkit", {}),
    ("HostsCluster", "driver"): (HOSTS, "cluster/driver", OWN),
    ("HostsCluster", "cuda"): (HOSTS, "cluster/cuda", "12.2"),
    ("HostsCluster", "kubeconfig"): (HOSTS, "cluster/kubeconfig", "/other"),
    ("HostsCluster", "context"): (HOSTS, "cluster/context", "prod"),
    ("Host", "name"): (HOSTS, "pools/0/hosts/0/name", "gpu-9"),
    ("Host", "address"): (HOSTS, "pools/0/hosts/0/address", "10.0.0.9"),
    ("Host", "port"): (HOSTS, "pools/0/hosts/0/port", 2222),
    ("Toolkit", "version"): (HOSTS, "cluster/toolkit/version", "1.17.8"),
    ("Toolkit", "mode"): (HOSTS, "cluster/toolkit/mode", "cdi"),
    ("Toolkit", "repository"): (HOSTS, "cluster/toolkit/repository", None),
    ("Driver", "source"): (HOSTS, "cluster/driver", {**OWN, "source": "distribution"}),
    ("Driver", "version"): (HOSTS, "cluster/driver/version", "575.57.08"),
    ("Driver", "modules"): (HOSTS, "cluster/driver/modules", "proprietary"),
    ("Driver", "repository"): (HOSTS, "cluster/driver/repository", None),
    ("Driver", "runfile"): (HOSTS, "pools/1/driver/runfile", {**RUNFILE, "url": "https://mirror.example/b.run"}),
    ("Runfile", "url"): (HOSTS, "pools/1/driver/runfile/url", "https://mirror.example/b.run"),
    ("Runfile", "sha256"): (HOSTS, "pools/1/driver/runfile/sha256", "b" * 64),
    ("Repository", "url"): (HOSTS, "cluster/driver/repository/url", "https://other.example/cuda"),
    ("Repository", "suite"): (HOSTS, "cluster/driver/repository/suite", "bookworm main"),
    ("Repository", "key"): (HOSTS, "cluster/driver/repository/key", "other.asc"),
    ("Repository", "fingerprint"): (HOSTS, "cluster/driver/repository/fingerprint", FINGERPRINT[::-1]),
    ("Pool", "hosts"): (HOSTS, "pools/2/hosts", ["cpu-1", "cpu-2"]),
    ("Pool", "driver"): (HOSTS, "pools/1/driver", OWN),
}  # fmt: skip
# Each toolkit version takes exactly one value: tests/config/test_bad_hosts.py tests both.
LETS_THROUGH = {("HostsCluster", "acknowledge")}
