"""Labels, annotations and pod labels that the simulator reads and writes, each spelled once."""

GPU_ID = "simulator.gpuform.io/gpu"  # Node: PCI ``vendor:device`` of its GPUs, hexadecimal
GPU_MODEL = "simulator.gpuform.io/gpu-model"
"""Node: JSON of a GPU model that the simulator's table does not have."""
GPU_COUNT = "simulator.gpuform.io/gpu-count"  # Node: number of its GPUs
GPU_RESET = "simulator.gpuform.io/gpu-reset"
"""Node: ``no`` if its GPUs cannot be reset, as in a virtual machine."""
REBOOT_SECONDS = "simulator.gpuform.io/reboot-seconds"  # Node: how long it is away when it reboots
DOWN_UNTIL = "simulator.gpuform.io/down-until"  # Node that reboots: when it is back, in seconds since 1970
BOOTS = "simulator.gpuform.io/reboots"  # Node: number of its reboots
MIG_PENDING = "simulator.gpuform.io/mig-mode-pending"
"""Node: GPUs with a MIG mode that changes at the next boot, by index, comma-separated."""
HOST_DRIVER = "simulator.gpuform.io/host-driver"
"""Node: version of a driver preinstalled on the host, for clusters without the operator's driver."""
EFA_ATTACHED = "simulator.gpuform.io/efa"  # Node: number of Elastic Fabric Adapters that it was launched with
RDMA_OFFERED = "simulator.gpuform.io/rdma"
"""Node: its RDMA adapters, ``{"resource", "count", "plugin"}`` in JSON. With ``plugin`` it offers them while
the shared device plugin runs there, else by one that is not simulated.
"""
DMI_PRODUCT = "simulator.gpuform.io/dmi-product"
"""Node: DMI product name, for example ``OpenStack Compute``; without it the instance type is used."""
CONTAINER_RUNTIME = "simulator.gpuform.io/container-runtime"
"""Node: its container engine, as ``containerd://1.6.20``; without it, one that accepts every setting."""
CONTAINERD_CONFIG = "simulator.gpuform.io/containerd-config"
"""Node: the version of containerd's own configuration file there."""
CDI = "simulator.gpuform.io/cdi"
"""Node: ``on`` if CDI was enabled in its container engine; newer versions have it on by default."""
DEFAULT_RUNTIME = "simulator.gpuform.io/default-runtime"
"""Node: the runtime of pods without a RuntimeClass; if left out, as NVIDIA's toolkit sets it."""
TRIAL = "gpuform-trial"  # Label ``app`` of the readiness gate's pod, which opens a GPU and ends
RUNTIME_DOWN = "simulator.gpuform.io/container-runtime-down"
"""Node with a container engine that has ended: why; a person removes it once the configuration is mended."""
MIG_LAYOUT = "simulator.gpuform.io/mig"
"""Node: the GPUs' MIG state, written by the MIG manager; a GPU that is not listed has MIG switched off."""
MIG_DONE = "simulator.gpuform.io/mig-config-done"
"""Node: the value of ``nvidia.com/mig.config`` that a MIG manager processed last, and the uid of its pod."""

UNHEALTHY = "simulator.gpuform.io/unhealthy"
"""Node: unhealthy GPUs by index or uuid, or MIG devices by uuid; comma-separated.

Pod of the device plugin, or of a DRA driver with health checks: ids of the devices that it reports as
unhealthy until it restarts.
"""

FAULTS = "simulator.gpuform.io/faults"
"""Node: its faults, as ``gpuform simulate fault`` writes them: a JSON list, see ``faults``."""
LOAD = "simulator.gpuform.io/gpu-load"
"""Pod that holds GPUs: how busy it keeps them, 0 to 1, ``sine`` or ``idle``; see ``dcgm.load``."""

MPS_LIMITS = "simulator.gpuform.io/mps-limits"
"""MPS daemon pod: the limits that it sets for every client of a GPU."""

START = "simulator.gpuform.io/start"  # Operand pod: ``waits`` until its turn, then ``granted``
AFTER = "simulator.gpuform.io/after"  # Operand pod: operands that must run on the node first
LOADED = "simulator.gpuform.io/config"
"""Operand pod: the configuration it has read; an edited ConfigMap changes nothing until it reads again."""
DEVICES = "simulator.gpuform.io/devices"
"""Pod: ids of the devices that the device manager allocated to it, comma-separated."""
MEMORY = "simulator.gpuform.io/gpu-memory"
"""Pod that requests GPUs: MiB that its process asks for on each device's GPU; ``all``: what is free."""
MEMORY_HELD = "simulator.gpuform.io/gpu-memory-held"
"""The same pod: MiB that it holds, written by the simulator; empty while its process is down."""
PUBLISHED = "simulator.gpuform.io/published"
"""ResourceSlice: hash of the devices that the driver meant to publish."""
RUN_ONCE = "simulator.gpuform.io/run-to-completion"
OPERAND = "simulator.gpuform.io/operand"  # Operand pod, a label: which operand it stands for
PART_OF = "app.kubernetes.io/part-of"
CHART = "gpu-operator-sim"
CHARTS = (
    *(CHART, "device-plugin-sim", "dcgm-exporter-sim", "dra-driver-sim", "efa-device-plugin-sim"),
    "network-operator-sim",
)
"""``part-of`` labels of our charts: operator, device plugin and exporter without an operator, DRA driver,
EFA's device plugin, network operator.
"""
DRA_OPERAND = "dra-driver"
SIMULATOR = "simulator.gpuform.io/"

VENDOR = "nvidia.com/"
GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
RDMA = "rdma/"
ADAPTERS = (EFA, RDMA)
"""Beginnings of the names of resources that are network adapters."""
DRA_DRIVER = "gpu.nvidia.com"  # Name of NVIDIA's DRA driver
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
MIG_CAPABLE = "nvidia.com/mig.capable"
PRESENT = "nvidia.com/gpu.present"
DEPLOY = "nvidia.com/gpu.deploy."
DEPLOY_OPERANDS = "nvidia.com/gpu.deploy.operands"
NIC_PRESENT = "feature.node.kubernetes.io/pci-15b3.present"
PCI_PRESENT = "feature.node.kubernetes.io/pci-10de.present"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
