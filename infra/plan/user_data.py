"""User data of nodes on AWS, beside what EKS or Karpenter adds.

Both add their own part, and theirs wins. On AL2023 Karpenter makes ours the first parts of a MIME archive and
appends a NodeConfig with the cluster's name, endpoint, certificate and CIDR, the node's labels, its taints
(``karpenter.sh/unregistered`` too) and ``spec.kubelet`` of the EC2NodeClass; nodeadm merges all NodeConfigs,
a later one over an earlier one. On Bottlerocket it parses our TOML and writes api-server,
cluster-certificate, cluster-name, node-labels, node-taints and max-pods into settings.kubernetes. A managed
node group adds the same data. Nothing of this is repeated here.

On AL2023 nodeadm makes NVIDIA's runtime the default one, and that runtime gives a GPU to every container that
sets NVIDIA_VISIBLE_DEVICES, unless its own configuration forbids it; so user data sets that. On Bottlerocket
it is forbidden by default.

Sources: nodeadm's API node.eks.aws/v1alpha1; Karpenter 1.14.3, ``pkg/providers/amifamily/bootstrap``;
Bottlerocket's reference of ``settings.kubelet-device-plugins``, ``settings.bootstrap-commands``,
``settings.kernel.sysctl`` and its migmanager. For the runtime: amazon-eks-ami,
``nodeadm/internal/containerd/runtime_config_nvidia.go`` and ``nodeadm-run.service``;
nvidia-container-toolkit 1.19.1, ``internal/config/image/cuda_image.go``;
bottlerocket-core-kit, ``packages/nvidia-container-toolkit/nvidia-container-toolkit-config-k8s``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from infra.model.base.fields import HUGE_PAGE
from infra.model.base.quantities import memory_bytes
from infra.model.base.registries import full_name
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps, TimeSlicing
from infra.plan import sharing

BOUNDARY = "gpuform-part"
_SCRIPT = 'text/x-shellscript; charset="us-ascii"'
PREPULL_TIMEOUT_S = 1800
"""Half an hour for a pre-pull; after that a pod that needs the image pulls it itself."""
BOTTLEROCKET_DIRECTORIES = ("/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
"""Directories on the node's own disks; the same as Karpenter 1.14.3 binds for instanceStorePolicy."""
ISOLATION_SCRIPT = """#!/bin/bash
nvidia-ctk config --in-place --config-file=/etc/nvidia-container-runtime/config.toml \\
  --set=accept-nvidia-visible-devices-envvar-when-unprivileged=false \\
  --set=accept-nvidia-visible-devices-as-volume-mounts=true && exit
echo 'gpuform: nvidia-ctk failed; containers without a GPU request would see GPUs: this node does not join' |
  tee /dev/console >&2
systemctl disable --now nodeadm-run.service
exit 1
"""
"""Only privileged containers get GPUs by NVIDIA_VISIBLE_DEVICES; a device plugin without CDI uses mounts.

cloud-init runs it once, before nodeadm-run.service starts containerd and kubelet; the runtime reads the file
for each container. If it fails, that unit's start is cancelled, for this and later boots: the node does not
join, and EKS or Karpenter reports that. A mask in /run has no effect: the unit is in /etc/systemd/system.
"""


def render(env: Environment, pool: Pool) -> str:
    """User data of the pool's nodes in the format of their image; may be empty."""
    return al2023(env, pool) if pool.image.family == "AL2023" else bottlerocket(pool)


def al2023(env: Environment, pool: Pool) -> str:
    """A MIME archive with a NodeConfig and shell scripts, each only if needed."""
    aws = pool.aws_settings
    config: dict[str, int] = {}
    if aws.max_pods is not None:
        config["maxPods"] = aws.max_pods
    if aws.pod_pids_limit is not None:
        config["podPidsLimit"] = aws.pod_pids_limit
    spec: dict[str, Any] = {"kubelet": {"config": config}} if config else {}
    if _sets_up_disks(pool):
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    parts = []
    if spec:
        node_config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
        parts.append(("application/node.eks.aws", sharing.to_yaml(node_config)))
    if pool.gpus:
        parts.append((_SCRIPT, ISOLATION_SCRIPT))
    if pool.hugepages:
        parts.append((_SCRIPT, huge_pages_script(pool.hugepages)))
    if aws.prepull:
        script = prepull_script(tuple(env.image(image) for image in aws.prepull))
        parts.append((_SCRIPT, script))
    return _archive(parts)


def _sets_up_disks(pool: Pool) -> bool:
    """Whether user data sets up the node's NVMe disks; Karpenter's nodes get that from the EC2NodeClass."""
    return pool.aws_settings.instance_store == "raid0" and not pool.by_karpenter


def huge_pages_script(memory: str) -> str:
    """A shell script that reserves memory in huge pages of 2 MiB, now and at each boot.

    cloud-init runs it before nodeadm starts the kubelet, which counts huge pages only at its start. Sources:
    Kubernetes' page "Manage HugePages", AWS's "Configure hugepages in Amazon EKS clusters".
    """
    setting = f"vm.nr_hugepages={memory_bytes(memory) // HUGE_PAGE}"
    return f"#!/bin/bash\nsysctl -w {setting}\necho {setting} > /etc/sysctl.d/90-gpuform-hugepages.conf\n"


def prepull_script(names: tuple[str, ...]) -> str:
    """A shell script that pulls images into containerd; public ones only, without a login.

    cloud-init runs it before nodeadm has started containerd, so it leaves the work to a systemd unit that
    waits for containerd. If the pre-pull fails, the node still joins.
    """
    pulls = "; ".join(  # containerd's own client does not complete names, unlike the kubelet
        f"ctr --namespace k8s.io images pull {shlex.quote(full_name(image))}" for image in names
    )
    script = f"until ctr version >/dev/null 2>&1; do sleep 2; done; {pulls}"
    unit = "systemd-run --no-block --unit=gpuform-prepull --property=Type=oneshot"
    limit = f"--property=TimeoutStartSec={PREPULL_TIMEOUT_S}"
    return f"#!/bin/bash\n{unit} {limit} /bin/bash -c {shlex.quote(script)} || true\n"


def _archive(parts: list[tuple[str, str]]) -> str:
    archive = ""
    for content_type, text in parts:
        archive = add_part(archive, content_type, text)
    return archive


def add_part(archive: str, content_type: str, text: str) -> str:
    """The MIME archive with one more part at its end; an empty ``archive`` has no parts."""
    end = f"--{BOUNDARY}--\n"
    head = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{BOUNDARY}"\n\n'
    return f"{archive.removesuffix(end) or head}--{BOUNDARY}\nContent-Type: {content_type}\n\n{text}\n{end}"


def bottlerocket(pool: Pool) -> str:
    """Bottlerocket's settings in TOML: kubelet limits and how its own device plugin shares the GPUs.

    Bottlerocket has no shell, so there is no pre-pull; the model rejects what it does not support.
    """
    aws = pool.aws_settings
    kubernetes: dict[str, Any] = {}
    if aws.max_pods is not None:
        kubernetes["max-pods"] = aws.max_pods
    if aws.pod_pids_limit is not None:
        kubernetes["pod-pids-limit"] = aws.pod_pids_limit
    tables = {"settings.kubernetes": kubernetes, **_device_plugin(pool)}
    if pool.hugepages:  # values of settings.kernel.sysctl are strings
        pages = str(memory_bytes(pool.hugepages) // HUGE_PAGE)
        tables["settings.kernel.sysctl"] = {"vm.nr_hugepages": pages}
    if _sets_up_disks(pool):
        # `init` makes one array of the disks, on every boot: their content is lost with the machine.
        init = ["apiclient", "ephemeral-storage", "init"]
        bind = ["apiclient", "ephemeral-storage", "bind", "--dirs", *BOTTLEROCKET_DIRECTORIES]
        steps = {"commands": [init, bind], "mode": "always", "essential": True}
        tables["settings.bootstrap-commands.instance-store"] = steps
    return "\n".join(_table(name, values) for name, values in tables.items() if values)


def _device_plugin(pool: Pool) -> dict[str, dict[str, Any]]:
    table, sharing = "settings.kubelet-device-plugins.nvidia", pool.sharing
    if isinstance(sharing, TimeSlicing):
        slicing = {
            "replicas": sharing.replicas,
            "rename-by-default": sharing.rename,
            "fail-requests-greater-than-one": sharing.fail_requests_greater_than_one,
        }
        return {table: {"device-sharing-strategy": "time-slicing"}, f"{table}.time-slicing": slicing}
    if isinstance(sharing, Mps):
        mps = {"replicas": sharing.replicas, "rename-by-default": False}
        return {table: {"device-sharing-strategy": "mps"}, f"{table}.mps": mps}
    if isinstance(sharing, Mig):
        return {table: {"device-partitioning-strategy": "mig"}, f"{table}.mig.profile": _mig(pool)}
    return {}


def _mig(pool: Pool) -> dict[str, str]:
    """Profile by GPU model that the nodes may have; each GPU gets as many slices as fit."""
    (profile,) = pool.profiles
    names = [gpu.bottlerocket for gpu in sorted(pool.gpus, key=lambda gpu: gpu.name)]
    return {name: profile for name in names if name}


def _table(name: str, values: Mapping[str, Any]) -> str:
    """One TOML table of plain values; strings, numbers and booleans are the same in JSON and TOML."""
    lines = [
        f"{json.dumps(key) if '.' in key else key} = {json.dumps(value)}" for key, value in values.items()
    ]
    return "\n".join([f"[{name}]", *lines, ""])
