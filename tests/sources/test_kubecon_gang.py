"""KubeCon's job on several nodes: numbered pods find each other, and start all at once (FACTS 1, row 25)."""

from __future__ import annotations

import pytest

from infra.config import parse
from infra.plan import queues, workloads

pytestmark = pytest.mark.unit


def test_kubecon_row_25_all_pods_of_a_job_at_once() -> None:
    """Its Service and Job, with GPUs for TPUs: four pods, each with all devices of its node."""
    job = {"name": "podslice", "kind": "job", "namespace": "ml", "pool": "slices", "image": "train:1"}
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "existing", "kubeconfig": "/k"},
            "pools": [{"name": "slices", "machine": "p4de.24xlarge", "selector": {"pool": "slices"}}],
            "queues": {
                "topology": {"slices": []},
                "teams": [{"name": "ml", "namespaces": ["ml"], "quota": {"slices": 32}}],
            },
            "workloads": [
                {**job, "queue": "ml", "gang": True, "indexed": True, "parallelism": 4, "count": 8}
            ],
        }
    )
    service, made = workloads.manifests(env)
    assert (service["spec"]["clusterIP"], service["metadata"]["name"]) == ("None", "podslice")
    spec, template = made["spec"], made["spec"]["template"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert (template["spec"]["subdomain"], template["spec"]["restartPolicy"]) == ("podslice", "Never")
    assert template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    (flavor,) = [one["spec"] for one in queues.manifests(env) if one["kind"] == "ResourceFlavor"]
    (topology,) = [one for one in queues.manifests(env) if one["kind"] == "Topology"]
    assert flavor["topologyName"] == topology["metadata"]["name"]
    assert topology["spec"]["levels"][-1] == {"nodeLabel": "kubernetes.io/hostname"}
