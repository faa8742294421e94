"""What is due for a check: ``python -m docs.facts``, which ``make facts`` runs.

Lists the rows of ``infra/facts`` that were compared with their source more than 90 days ago, and for each pin
of ``infra/versions.py`` the newest release that go, pip and helm find with their own settings.
Exit codes: 0 nothing is due, 3 something is.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from infra import facts, versions
from infra.model.base.quantities import version_numbers

OLD = datetime.timedelta(days=90)
DUE = 3
Source = tuple[str, str]
"""The program that knows the releases, and the module, the package, or the chart with its repository."""
SOURCES: Mapping[str, Source | None] = {
    "PULUMI": ("pip", "pulumi"),
    "KUBERNETES": ("go", "k8s.io/kubernetes"),
    "ETCD": ("go", "go.etcd.io/etcd/server/v3"),
    "KWOK": ("go", "sigs.k8s.io/kwok"),
    "HELM": ("go", "helm.sh/helm/v3"),
    "PULUMI_KUBERNETES_MODULE": ("go", "github.com/pulumi/pulumi-kubernetes/provider/v4"),
    "OPENSTACK_PROVIDER": ("go", "github.com/terraform-provider-openstack/terraform-provider-openstack/v3"),
    "PROMETHEUS": None,  # PROMETHEUS_MODULE is the same release
    "PROMETHEUS_MODULE": ("go", "github.com/prometheus/prometheus"),
    "KUBE_STATE_METRICS": ("go", "k8s.io/kube-state-metrics/v2"),
    "PROMETHEUS_OPERATOR_CRDS": (
        "go",
        "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring",
    ),
    "GO": ("go", "go"),
    "GPU_OPERATOR": ("helm", f"gpu-operator {versions.GPU_OPERATOR_REPOSITORY}"),
    "GPU_DRIVER": None,  # these three are the operator's defaults
    "CONTAINER_TOOLKIT": None,
    "DEVICE_PLUGIN": ("helm", f"nvidia-device-plugin {versions.DEVICE_PLUGIN_REPOSITORY}"),
    "NETWORK_OPERATOR": ("helm", f"network-operator {versions.GPU_OPERATOR_REPOSITORY}"),
    "DRA_DRIVER": ("helm", f"dra-driver-nvidia-gpu {versions.DRA_DRIVER_REPOSITORY}"),
    "GPU_DRIVER_OF_BRANCH": None,  # infra/facts/fixes.yaml has the floor
    "HOST_CONTAINER_TOOLKIT": ("go", "github.com/NVIDIA/nvidia-container-toolkit"),
    "KEDA": ("helm", f"keda {versions.KEDA_REPOSITORY}"),
    "KUEUE": ("go", "sigs.k8s.io/kueue"),
    "KSERVE": ("go", "github.com/kserve/kserve"),
    "CERT_MANAGER": ("go", "github.com/cert-manager/cert-manager"),
    "KUBE_PROMETHEUS_STACK": (
        "helm",
        f"kube-prometheus-stack {versions.KUBE_PROMETHEUS_STACK_REPOSITORY}",
    ),
    "DCGM_EXPORTER_CHART": ("helm", f"dcgm-exporter {versions.DCGM_EXPORTER_REPOSITORY}"),
    "BUSYBOX": None,  # registries of images are not asked
    "KUBE_SCHEDULER": ("go", "k8s.io/kubernetes"),
    "KARPENTER": ("go", "github.com/aws/karpenter-provider-aws"),
    "EKS_ADD_ONS": None,  # only an AWS account can ask; preflight does
    "EFA_DEVICE_PLUGIN": ("helm", f"aws-efa-k8s-device-plugin {versions.EKS_CHARTS_REPOSITORY}"),
}
Run = Callable[[Source], str]


@cache
def ask(source: Source) -> str:
    """What the program prints about the releases; empty if it is not there, or reaches nothing."""
    program, name = source
    chart, _, repository = name.partition(" ")
    command = {
        "go": ["go", "list", "-m", "-versions", name],
        "pip": [sys.executable, "-m", "pip", "index", "versions", name],
        "helm": ["helm", "show", "chart", f"{repository}/{chart}"]
        if repository.startswith("oci:")
        else ["helm", "show", "chart", chart, "--repo", repository],
    }[program]
    try:
        with tempfile.TemporaryDirectory() as folder:  # without a go.mod
            done = subprocess.run(
                command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=120
            )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def newest(text: str, prefix: str = "") -> str:
    """The newest final release of an answer that begins with ``prefix``; empty if there is none."""
    if found := re.search(r"^version: v?(\S+)$", text, re.MULTILINE):
        return found[1]
    releases = [word.strip("(),").removeprefix("v") for word in text.split()]
    final = [word for word in releases if re.fullmatch(r"\d+(\.\d+)+", word) and word.startswith(prefix)]
    return max(final, key=version_numbers, default="")


def pins() -> Iterator[tuple[str, str, str, Source | None]]:
    """(name, pinned version, prefix of the releases that may replace it, source) of each pin."""
    for name, source in SOURCES.items():
        value = getattr(versions, name)
        if isinstance(value, str):
            yield name, value, "", source
        else:
            for key, pinned in value.items():
                yield f"{name}[{key}]", str(pinned), f"{key}.", source


def old_rows(today: datetime.date) -> list[str]:
    """The rows that are due for a comparison with their source."""
    return [
        f"{table}.yaml: {row} (checked {today - row.date} ago)".replace(", 0:00:00", "")
        for table, rows in facts.TABLES.items()
        for row in rows
        if today - row.date > OLD
    ]


def report(today: datetime.date, run: Run = ask) -> tuple[int, str]:
    """Exit code and text."""
    rows, newer, unknown = old_rows(today), [], []
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, {source for source in SOURCES.values() if source}))
    for name, pinned, prefix, source in pins():
        found = newest(run(source), prefix) if source else ""
        if found and version_numbers(found) > version_numbers(pinned):
            newer.append(f"{name} is {pinned}, the newest release is {found}")
        elif not found:
            where = "no answer from " + " ".join(source) if source else "no registry is asked"
            unknown.append(f"{name} is {pinned}: {where}")
    sections = {
        "Facts last checked more than 90 days ago": rows,
        "Pins with a newer release": newer,
        "Pins not compared": unknown,
    }
    text = "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in sections.items() if lines)
    return (DUE if rows or newer else 0), f"{text}\n"


if __name__ == "__main__":
    code, text = report(datetime.datetime.now(datetime.UTC).date())
    print(text, end="")
    sys.exit(code)
