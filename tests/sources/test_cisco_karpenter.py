"""Cisco's article: Karpenter by Helm, a NodePool of g4dn.xlarge and its node class (FACTS 1, rows 19 to 21).

Their v1beta1 and Amazon Linux 2 are gone: their declarations are in v1, on AL2023. v1 has no launch template,
and nodeadm replaces their call of bootstrap.sh. Their label nvidia.com/gpu=true, by which the device plugin's
DaemonSet selects its nodes, is discovery's nvidia.com/gpu.present with the operator.
"""

from __future__ import annotations

import email

import pytest
import yaml

from infra.config import parse
from infra.plan import eks, karpenter, node_class, overlays

pytestmark = pytest.mark.unit

ENV = parse(
    {
        "name": "nextgen-learninglab",
        "cluster": {
            "kind": "aws",
            "region": "us-west-1",
            "version": "1.34",
            "network": {"cidr": "10.20.0.0/16", "zones": ["us-west-1a", "us-west-1b"]},
            "images": {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"},
        },
        "pools": [
            {
                "name": "g4",
                "machine": "g4dn.xlarge",
                "elastic": {"max": {"cpu": 1000}},
                "capacity": ["on_demand"],
                "class": "interactive",
                "sharing": {
                    "kind": "time_slicing",
                    "replicas": 3,
                    "rename": False,
                    "fail_requests_greater_than_one": False,
                },
                "aws": {
                    "disk": {"size_gib": 100, "iops": 10000, "throughput": 125},
                    "max_pods": 110,
                    "pod_pids_limit": 32768,
                    "prepull": ["docker.io/tensorflow/tensorflow:2.12.0-gpu"],
                },
            }
        ],
    }
)
POOL = ENV.pools[0]


def test_cisco_karpenter_helm() -> None:
    release = eks.karpenter_release(ENV)
    assert release.chart == "oci://public.ecr.aws/karpenter/karpenter"
    assert release.namespace == "kube-system"
    settings = release.values["settings"]
    assert settings["clusterName"] == settings["interruptionQueue"] == "nextgen-learninglab"
    size = {"cpu": "1", "memory": "1Gi"}
    assert release.values["controller"]["resources"] == {"requests": size, "limits": size}


def test_cisco_karpenter_nodepool_g4dn() -> None:
    (pool,) = karpenter.node_pools(ENV, POOL)
    assert pool["apiVersion"] == "karpenter.sh/v1"
    spec = pool["spec"]
    assert spec["limits"] == {"cpu": "1000"}
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"  # v1's WhenUnderutilized
    template = spec["template"]["spec"]
    assert template["expireAfter"] == "120m"  # in v1 it belongs to the nodes
    assert template["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    assert template["requirements"] == [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g4dn.xlarge"]},
    ]


def test_cisco_a_node_counts_for_three_pods_before_it_is_there() -> None:
    """So the fourth pod starts one node, instead of one node for each further pod."""
    (overlay,) = overlays.node_overlays(ENV, POOL)
    assert overlay["spec"]["capacity"] == {"nvidia.com/gpu": "3"}
    assert eks.karpenter_release(ENV).values["settings"]["featureGates"]["nodeOverlay"] is True


def test_cisco_node_class() -> None:
    manifest = node_class.ec2_node_class(ENV, POOL, "KarpenterNodeRole", ENV.name)
    spec = manifest["spec"]
    assert spec["role"] == "KarpenterNodeRole"
    found_by = [{"tags": {"karpenter.sh/discovery": "nextgen-learninglab"}}]
    assert spec["subnetSelectorTerms"] == spec["securityGroupSelectorTerms"] == found_by
    assert spec["blockDeviceMappings"] == [
        {
            "deviceName": "/dev/xvda",
            "ebs": {
                "volumeSize": "100Gi",
                "volumeType": "gp3",
                "iops": 10000,
                "throughput": 125,
                "encrypted": True,
                "deleteOnTermination": True,
            },
        }
    ]
    assert spec["tags"]["Name"] == "nextgen-learninglab-g4"


def test_cisco_user_data_pulls_the_image_and_sets_the_limits() -> None:
    manifest = node_class.ec2_node_class(ENV, POOL, "KarpenterNodeRole", ENV.name)
    config, _, script = email.message_from_string(manifest["spec"]["userData"]).get_payload()
    kubelet = yaml.safe_load(config.get_payload())["spec"]["kubelet"]["config"]
    assert kubelet == {"maxPods": 110, "podPidsLimit": 32768}
    assert "k8s.io images pull docker.io/tensorflow/tensorflow:2.12.0-gpu" in script.get_payload()
