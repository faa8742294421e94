"""Every field that matters on AWS: its path and another value; the program must then differ."""

from __future__ import annotations

import json
from typing import Any

IMAGE = "tensorflow/tensorflow:2.12.0-gpu"
RESERVATION = "cr-0123456789abcdef0"

TAINTS = [{"key": "a", "value": "b"}]
PINNED_TO = "al2023@v20260801"
CLUSTER: dict[str, Any] = {
    **{"kind": "aws", "region": "eu-west-1", "version": "1.34", "system": {}, "tags": {"a": "b"}},
    "network": {"cidr": "10.0.0.0/16", "zones": ["eu-west-1a", "eu-west-1b"]},
    "endpoint": {"public_cidrs": ["203.0.113.0/24"]},
    "admins": ["arn:aws:iam::111122223333:role/a"],
    "images": {"al2023": PINNED_TO, "al2023-nvidia": PINNED_TO},
}
DISK = {"disk": {"size_gib": 200}}
T4 = {
    **{
        "name": "t4",
        "machine": "g4dn.xlarge",
        "elastic": {"max": {"cpu": 40}},
        "taints": TAINTS,
        "aws": DISK,
    },
    "sharing": {"kind": "time_slicing", "replicas": 3},
}
A100 = {"name": "a100", "machine": "p4d.24xlarge", "nodes": 1, "taints": TAINTS, "aws": DISK}
L4 = {"name": "l4", "gpu": {"models": ["L4"], "count": 1}, "elastic": {"max": {"cpu": 64}}}
DECLARED = {
    **{"name": "e", "cluster": CLUSTER, "gpu_operator": {}},
    "pools": [T4, {**A100, "zones": ["eu-west-1a"]}, L4],
    "workloads": [{"name": "pod", "kind": "pod", "pool": "t4", "image": IMAGE}],
}
START: dict[str, Any] = json.loads(json.dumps(DECLARED))
"""Without parts in common: an edit changes one pool."""

RESERVED = {"reservations": [RESERVATION]}
BOTTLEROCKET = {"image": "bottlerocket"}
PINNED = ("cluster/images/bottlerocket", "bottlerocket@1.50.0")
COMES: dict[str, Any] = {"name": "comes", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": 4}}}
STAYS: dict[str, Any] = {"name": "stays", "machine": "m6i.xlarge", "nodes": 1}
BY_CLAIM = {"kind": "dra"}
CLAIMED: dict[str, Any] = {"name": "claimed", "machine": "g6.12xlarge", "nodes": 1, "sharing": BY_CLAIM}
HAS_CLAIMED = (("pools/3", CLAIMED),)
ELSEWHERE = {"cidr": "10.0.0.0/16", "zones": ["eu-west-2a", "eu-west-2b"]}
ZONES = ["eu-west-1a", "eu-west-1b"]
BY_ID = {
    "vpc": "vpc-0123456789abcdef0",
    "subnets": {zone: f"subnet-0123456789abcdef{index}" for index, zone in enumerate(ZONES)},
}
BY_TAG = {"vpc": "vpc-0123456789abcdef0", "subnets": {"tags": {"tier": "private"}, "zones": ZONES}}
SECOND = {"max": {"cpu": 40, "memory_gib": 160}}

# (Type, field, variant such as a pool): edits before, and the edit that must change a resource.
Edit = tuple[str, Any]
BOTH: dict[tuple[str, str], Edit] = {
    ("Pool", "labels"): ("labels", {"a": "c"}),
    ("Pool", "zones"): ("zones", ["eu-west-1b"]),
    ("AwsPool", "disk"): ("aws/disk", {"size_gib": 300}),
    ("Disk", "size_gib"): ("aws/disk/size_gib", 300),
    ("Disk", "iops"): ("aws/disk/iops", 4000),
    ("Disk", "throughput"): ("aws/disk/throughput", 250),
    ("AwsPool", "instance_store"): ("aws/instance_store", "raid0"),
    ("AwsPool", "pod_pids_limit"): ("aws/pod_pids_limit", 32768),
    ("AwsPool", "prepull"): ("aws/prepull", [IMAGE]),
}
"""Fields that must change a resource of an elastic pool and of a managed one, by the path in the pool."""
ROWS: dict[tuple[str, str, str], tuple[tuple[Edit, ...], Edit]] = {
    ("AwsCluster", "region", ""): (
        (("pools/1/zones", []),),
        ("cluster", {**START["cluster"], "region": "eu-west-2", "network": ELSEWHERE}),
    ),
    ("AwsCluster", "version", ""): ((), ("cluster/version", "1.35")),
    ("AwsCluster", "support", ""): ((), ("cluster/support", "extended")),
    ("AwsCluster", "add_ons", ""): ((), ("cluster/add_ons", {"coredns": "v1.14.3-eksbuild.3"})),
    ("AwsCluster", "network", ""): ((), ("cluster/network/cidr", "10.1.0.0/16")),
    ("AwsCluster", "endpoint", ""): ((), ("cluster/endpoint", {})),
    ("AwsCluster", "system", ""): ((), ("cluster/system", {"nodes": 3})),
    ("AwsCluster", "admins", ""): ((), ("cluster/admins", [])),
    ("AwsCluster", "images", "elastic and managed"): ((), ("cluster/images/al2023-nvidia", "ami-01234567")),
    ("AwsCluster", "images", "system"): ((), ("cluster/images/al2023", "al2023@v20260802")),
    ("AwsCluster", "tags", ""): ((), ("cluster/tags", {"a": "c"})),
    ("OwnNetwork", "cidr", ""): ((), ("cluster/network/cidr", "10.1.0.0/16")),
    ("OwnNetwork", "zones", ""): ((), ("cluster/network/zones", ["eu-west-1a", "eu-west-1c"])),
    ("OwnNetwork", "nat", ""): ((), ("cluster/network/nat", "per_zone")),
    ("ExistingNetwork", "vpc", "by tags"): (
        (("cluster/network", BY_TAG),), ("cluster/network/vpc", "vpc-0123456789abcdef1")),
    ("ExistingNetwork", "subnets", "by id"): (
        (("cluster/network", BY_ID),), ("cluster/network/subnets/eu-west-1b", "subnet-0123456789abcdef2")),
    ("SubnetTags", "tags", ""): (
        (("cluster/network", BY_TAG),), ("cluster/network/subnets/tags/tier", "public")),
    ("SubnetTags", "zones", ""): (
        (("cluster/network", BY_TAG),), ("cluster/network/subnets/zones", ["eu-west-1a", "eu-west-1c"])),
    ("Endpoint", "public_cidrs", ""): ((), ("cluster/endpoint/public_cidrs", ["198.51.100.0/24"])),
    ("SystemNodes", "machine", ""): ((), ("cluster/system/machine", "m6i.4xlarge")),
    ("SystemNodes", "nodes", ""): ((), ("cluster/system/nodes", 3)),
    ("Elastic", "max", "amount"): ((), ("pools/0/elastic/max/cpu", 80)),
    ("Elastic", "max", "another key"): ((), ("pools/0/elastic", SECOND)),
    ("Elastic", "max", "an offered resource"): ((), ("pools/0/elastic/max", {"nvidia.com/gpu.shared": 30})),
    ("Pool", "name", "elastic"): ((("workloads", []),), ("pools/0/name", "other")),
    ("Pool", "name", "managed"): ((), ("pools/1/name", "other")),
    ("Pool", "machine", "elastic"): ((), ("pools/0/machine", "g4dn.2xlarge")),
    ("Pool", "machine", "managed"): ((), ("pools/1/machine", "p4de.24xlarge")),
    ("Pool", "gpu", "elastic"): ((), ("pools/2/gpu", {"models": ["A10G"], "count": 1})),
    ("GpuChoice", "named", "elastic"): ((), ("pools/2/gpu/models", ["L4", "A10G"])),
    ("GpuChoice", "count", "elastic"): ((), ("pools/2/gpu/count", 4)),
    ("GpuChoice", "count", "several"): ((), ("pools/2/gpu/count", [1, 4])),
    ("Pool", "nodes", "managed"): ((), ("pools/1/nodes", 2)),
    ("Pool", "nodes", "static"): (HAS_CLAIMED, ("pools/3/nodes", 2)),
    ("Pool", "sharing", "static"): (HAS_CLAIMED, ("pools/3/sharing", {"kind": "exclusive"})),
    ("Pool", "capacity", "static"): (HAS_CLAIMED, ("pools/3/capacity", ["spot"])),
    ("Pool", "workload_class", "static"): (HAS_CLAIMED, ("pools/3/class", "training")),
    ("Pool", "zones", "static"): (HAS_CLAIMED, ("pools/3/zones", ["eu-west-1b"])),
    ("Pool", "labels", "static"): (HAS_CLAIMED, ("pools/3/labels", {"a": "c"})),
    ("Pool", "taints", "static"): (HAS_CLAIMED, ("pools/3/taints", [{"key": "c"}])),
    ("Pool", "gpu", "static"): (
        (("pools/3", {**CLAIMED, "machine": None, "gpu": {"models": ["T4"], "count": 1}}),),
        ("pools/3/gpu", {"models": ["L4"], "count": 1}),
    ),
    ("PodWorkload", "pool", "static"): (HAS_CLAIMED, ("workloads/0/pool", "claimed")),
    ("PodWorkload", "count", "static"): (
        (*HAS_CLAIMED, ("workloads/0/pool", "claimed")), ("workloads/0/count", 2)),
    ("Pool", "elastic", ""): ((), ("pools/0/elastic", {"max": {"cpu": 4}})),
    ("Pool", "taints", "elastic"): ((), ("pools/0/taints/0/value", "c")),
    ("Pool", "taints", "managed"): ((), ("pools/1/taints/0/effect", "NoExecute")),
    ("Pool", "sharing", "elastic"): ((), ("pools/0/sharing", {"kind": "exclusive"})),
    ("Pool", "sharing", "managed"): ((), ("pools/1/sharing", {"kind": "mig", "layout": "all-1g.5gb"})),
    ("Pool", "capacity", "elastic"): ((), ("pools/0/capacity", ["on_demand", "spot"])),
    ("Pool", "capacity", "managed"): ((), ("pools/1/capacity", ["spot"])),
    ("Pool", "workload_class", "elastic"): ((), ("pools/0/class", "training")),
    ("Pool", "aws", "elastic"): ((), ("pools/0/aws", {"pod_pids_limit": 2048})),
    ("AwsPool", "image", "elastic"): (
        (PINNED, ("pools/3", COMES), ("pools/4", {**STAYS, "aws": BOTTLEROCKET})),
        ("pools/3/aws", BOTTLEROCKET),
    ),
    ("AwsPool", "image", "managed"): (
        (PINNED, ("pools/3", STAYS), ("pools/4", {**COMES, "aws": BOTTLEROCKET})),
        ("pools/3/aws", BOTTLEROCKET),
    ),
    ("AwsPool", "efa", "elastic"): (
        (("pools/0/machine", "g4dn.8xlarge"), ("pools/0/zones", ["eu-west-1a"])), ("pools/0/aws/efa", True)),
    ("AwsPool", "efa", "managed"): ((), ("pools/1/aws/efa", True)),
    ("AwsPool", "reservations", "elastic"): (
        (("pools/0/capacity", ["reserved"]), ("pools/0/aws", RESERVED)),
        ("pools/0/aws/reservations", [RESERVATION, "cr-01234567"]),
    ),
    ("AwsPool", "reservations", "managed"): (
        (("pools/1/capacity", ["reserved"]), ("pools/1/aws", RESERVED)),
        ("pools/1/aws/reservations", ["cr-01234567"]),
    ),
    ("AwsPool", "reservations", "static"): (
        (("pools/3", {**CLAIMED, "capacity": ["reserved"], "aws": RESERVED}),),
        ("pools/3/aws/reservations", [RESERVATION, "cr-01234567"]),
    ),
    ("AwsPool", "disk", "static"): (HAS_CLAIMED, ("pools/3/aws", {"disk": {"size_gib": 300}})),
    ("AwsPool", "efa", "static"): (
        (("pools/3", {**CLAIMED, "zones": ["eu-west-1a"], "machine": "g6.24xlarge"}),),
        ("pools/3/aws", {"efa": True}),
    ),
    ("AwsPool", "capacity_block", "managed"): (
        (("pools/1/capacity", ["reserved"]), ("pools/1/aws", RESERVED)),
        ("pools/1/aws/capacity_block", True),
    ),
    ("AwsPool", "placement_group", "managed"): ((), ("pools/1/aws/placement_group", True)),
    ("AwsPool", "max_pods", "elastic"): ((), ("pools/0/aws/max_pods", 20)),
    ("AwsPool", "max_pods", "managed"): ((), ("pools/1/aws/max_pods", 110)),
    ("AwsPool", "max_pods", "more than the addresses"): ((), ("pools/0/aws/max_pods", 110)),
}  # fmt: skip
ROWS |= {
    (*field, kind): ((), (f"pools/{index}/{path}", value))
    for field, (path, value) in BOTH.items()
    for index, kind in enumerate(("elastic", "managed"))
}
FIELDS = {(model, field) for model, field, _ in ROWS}
