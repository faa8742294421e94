"""Pods that hold a device by claim end as on a real node: whoever deletes their owner waits for neither."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.cluster

CLASS = "device.example.org"


def claimed() -> list[dict[str, Any]]:
    """A class, a node's one device of it, and a Deployment whose pod claims that."""
    resource = {"apiVersion": "resource.k8s.io/v1"}
    driver = f'device.driver == "{CLASS}"'
    requests = [{"name": "device", "exactly": {"deviceClassName": CLASS}}]
    pod = {
        "containers": [{"name": "main", "image": "simulated.gpuform.io/main"}],
        "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "device"}],
    }
    labels = {"app": "claimer"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    here = {"namespace": "default"}
    return [
        {
            **resource,
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": [{"cel": {"expression": driver}}]},
        },
        {
            **resource,
            "kind": "ResourceSlice",
            "metadata": {"name": f"cpu-0-{CLASS}"},
            "spec": {
                "driver": CLASS,
                "nodeName": "cpu-0",
                "pool": {"name": "cpu-0", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "device-0"}],
            },
        },
        {
            **resource,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "device", **here},
            "spec": {"spec": {"devices": {"requests": requests}}},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "claimer", **here},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    ]


def test_the_owner_of_a_claimed_pod_goes_with_all_it_owns(site: Any) -> None:
    site.apply(*claimed())
    site.kubectl("rollout", "status", "deployment/claimer", "--timeout=60s")
    assert "allocated" in site.kubectl("get", "resourceclaims")
    site.kubectl("delete", "deployment", "claimer", "--cascade=foreground", "--timeout=30s")
    site.until(lambda: site.kubectl("get", "resourceclaims", "-o", "name"), "".__eq__)
    site.kubectl("delete", "deviceclass", CLASS)
    site.kubectl("delete", "resourceslice", f"cpu-0-{CLASS}")
