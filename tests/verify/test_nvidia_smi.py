from __future__ import annotations

from pathlib import Path

import pytest

from tests.hosts import nvidia_smi
from tests.hosts.nvidia_smi import ListedGpu, MigDevice, QueriedGpu, Table, TableGpu

pytestmark = pytest.mark.unit

CERN = Path(__file__).parents[3] / "shared/sources/cern-gpus-on-kubernetes.txt"

TABLE_580 = """\
Fri Nov 14 10:21:03 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-PCIE-40GB          On  |   00000000:00:07.0 Off |                   On |
| N/A   34C    P0             32W /  250W |      38MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA RTX PRO 6000 Blac...    Off |   00000000:81:00.0 Off |                    0 |
| N/A   30C    P8             11W /  600W |       0MiB /  97887MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""

LIST = """\
GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.20gb     Device  0: (UUID: MIG-2af3958e-6a7c-5b1f-8a39-5c1a70ad9a3f)
  MIG 2g.10gb     Device  1: (UUID: MIG-3a83b0a4-2b27-5d70-aa10-4bbde0d8cfcd)
  MIG 1g.5gb+me   Device  2: (UUID: MIG-70dc024a-e8d0-5587-81fa-8ea7ec0d3d0b)
GPU 1: Tesla T4 (UUID: GPU-1d4c6a5e-5b8a-4e7d-9c11-3f6f0b1f9f00)
"""


def test_the_list_has_each_gpu_with_its_slices() -> None:
    assert nvidia_smi.listed(LIST) == (
        ListedGpu(
            0,
            "NVIDIA A100-PCIE-40GB",
            "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f",
            (
                MigDevice("3g.20gb", "MIG-2af3958e-6a7c-5b1f-8a39-5c1a70ad9a3f"),
                MigDevice("2g.10gb", "MIG-3a83b0a4-2b27-5d70-aa10-4bbde0d8cfcd"),
                MigDevice("1g.5gb+me", "MIG-70dc024a-e8d0-5587-81fa-8ea7ec0d3d0b"),
            ),
        ),
        ListedGpu(1, "Tesla T4", "GPU-1d4c6a5e-5b8a-4e7d-9c11-3f6f0b1f9f00"),
    )
    assert dict(nvidia_smi.listed(LIST)[0].slices) == {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb+me": 1}


@pytest.mark.parametrize("text", ["", "\n", "No devices found.\n"])
def test_a_list_without_gpus_is_empty(text: str) -> None:
    assert nvidia_smi.listed(text) == ()


def test_a_list_that_is_none_quotes_its_line() -> None:
    with pytest.raises(nvidia_smi.Unreadable, match=r"`nvidia-smi -L` printed 'Segmentation fault'"):
        nvidia_smi.listed("Segmentation fault\n")


def test_the_query_has_what_a_gpu_does_not_know_as_none() -> None:
    text = (
        "0, GPU-5c89, NVIDIA A100-PCIE-40GB, 580.95.05, Enabled, Disabled\n"
        "1, GPU-1d4c, Tesla T4, 580.95.05, Disabled, [N/A]\n"
    )
    assert nvidia_smi.queried(text) == (
        QueriedGpu(0, "GPU-5c89", "NVIDIA A100-PCIE-40GB", "580.95.05", True, False),
        QueriedGpu(1, "GPU-1d4c", "Tesla T4", "580.95.05", False, None),
    )


def test_a_query_that_failed_quotes_its_line() -> None:
    with pytest.raises(nvidia_smi.Unreadable, match="Unable to determine the device handle"):
        nvidia_smi.queried("Unable to determine the device handle for GPU0: 0000:00:07.0: Unknown Error\n")


def test_the_table_of_branch_580() -> None:
    assert nvidia_smi.table(TABLE_580) == Table(
        "580.95.05",
        "13.0",
        (
            TableGpu(0, "NVIDIA A100-PCIE-40GB", True, "00000000:00:07.0"),
            TableGpu(1, "NVIDIA RTX PRO 6000 Blac...", False, "00000000:81:00.0"),
        ),
    )


@pytest.mark.skipif(not CERN.exists(), reason="the sources are not beside this checkout")
def test_the_table_as_cern_shows_it() -> None:
    lines = CERN.read_text()
    begin = lines.index("root@tf-gpu:/# nvidia-smi")
    shown = nvidia_smi.table(lines[begin : lines.index("```", begin)])
    assert shown == Table("550.54.15", "12.4", (TableGpu(0, "Tesla T4", True, "00000000:00:07.0"),))


def test_a_failed_driver_is_no_table() -> None:
    with pytest.raises(nvidia_smi.Unreadable, match="Failed to initialize NVML"):
        nvidia_smi.table("Failed to initialize NVML: Driver/library version mismatch\n")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB", True),
        ("Tesla T4", "Tesla T4", True),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB", False),
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB-LS", False),
    ],
)
def test_products_of_older_branches_have_no_vendor(one: str, other: str, same: bool) -> None:
    assert nvidia_smi.same_product(one, other) is same
