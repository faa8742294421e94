"""What the checks read: nvidia-smi, inventories, runtime configuration, packages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import testinfra

from gpuform.hosts.checks import expected, nvidia_smi, packages, runtime_config
from gpuform.hosts.checks.container import unlinked_devices
from gpuform.hosts.checks.findings import CheckFailure
from gpuform.hosts.checks.nvidia_smi import ListedGpu, MigDevice, QueriedGpu
from gpuform.hosts.checks.packages import Packages

pytestmark = pytest.mark.unit

LAYOUT = {
    "version": "v1",
    "mig-configs": {
        "mixed": [
            {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"3g.20gb": 2}},
            {"devices": [2], "mig-enabled": False},
        ],
        "same": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}],
    },
}


def test_hosts_come_from_the_file_by_name(tmp_path: Path) -> None:
    file = tmp_path / "inventory.json"
    hosts = {"b": {"gpuform_pool": "t4"}, "a": {"gpuform_pool": "t4"}, "cp": {"gpuform_pool": ""}}
    file.write_text(json.dumps({"_meta": {"hostvars": hosts}}))
    assert list(expected.read_inventory(file)) == ["a", "b", "cp"]
    assert list(expected.read_inventory(file, limit="b")) == ["b"]
    assert expected.read_inventory(file)["cp"].labels == {}


def test_a_host_without_gpus_expects_none() -> None:
    host = expected.parse_host("cpu-1", {"gpuform_pool": "cpu"})
    assert (host.gpu_count, host.driver_version, host.toolkit_version) == (0, "", "")


@pytest.mark.parametrize(
    ("variables", "slices"),
    [
        ({}, [{}, {}, {}]),
        ({"nvidia_mig_layout": "same", "nvidia_mig_config": LAYOUT}, [{"1g.5gb": 7}] * 3),
        ({"nvidia_mig_layout": "mixed", "nvidia_mig_config": LAYOUT}, [{"3g.20gb": 2}] * 2 + [{}]),
        ({"gpuform_kubeconfig": "/k"}, [None] * 3),
        ({"gpuform_kubeconfig": "/k", "gpuform_mig": {"all": {"1g.5gb": 7}}}, [{"1g.5gb": 7}] * 3),
        (
            {"gpuform_kubeconfig": "/k", "gpuform_mig": {"1": {"1g.5gb": 7}, "2": {"3g.20gb": 2}}},
            [{}, {"1g.5gb": 7}, {"3g.20gb": 2}],
        ),
    ],
)
def test_slices_are_planned_by_the_role_or_by_the_operator(
    variables: dict[str, object], slices: list[object]
) -> None:
    host = expected.parse_host("gpu-1", {"gpuform_pool": "a100", **variables})
    assert [host.slices(index) for index in range(3)] == slices
    assert host.cuts_at_boot is ("nvidia_mig_layout" in variables)


def test_a_remedy_names_the_stack() -> None:
    assert expected.parse_host("a", {}, "lab").apply == "`gpuform hosts apply lab`"
    assert expected.parse_host("a", {}).apply == "`gpuform hosts apply`"


@pytest.mark.parametrize("version", [2, 3, 4])
def test_each_version_of_containerds_configuration_names_the_plugin(version: int) -> None:
    handler = {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": "/usr/bin/x"}}
    cri = {
        "enable_cdi": True,
        "cdi_spec_dirs": ["/etc/cdi"],
        "containerd": {"default_runtime_name": "runc", "runtimes": {"runc": {}, "nvidia": handler}},
    }
    plugin = "io.containerd.grpc.v1.cri" if version == 2 else "io.containerd.cri.v1.runtime"
    read = runtime_config.containerd({"version": version, "plugins": {plugin: cri}})
    assert read == runtime_config.RuntimeConfig(
        default="runc", binaries={"runc": "", "nvidia": "/usr/bin/x"}, cdi=True, cdi_dirs=("/etc/cdi",)
    )


def test_an_unknown_version_of_containerds_configuration_is_refused() -> None:
    with pytest.raises(
        CheckFailure, match="configuration has version 5, which is newer than those known here"
    ):
        runtime_config.containerd({"version": 5, "plugins": {"io.containerd.cri.v2.runtime": {}}})


def test_a_drop_in_of_a_higher_version_than_containerds_file_is_found_before_a_restart() -> None:
    root = {"version": 2, "imports": ["/etc/containerd/conf.d/*.toml"]}
    assert runtime_config.merged([{"version": 2}, root, {"version": 2}])["version"] == 2
    assert runtime_config.merged([]) == {}
    with pytest.raises(
        CheckFailure, match="a drop-in has configuration version 4, and containerd's own file 2"
    ):
        runtime_config.merged([{"version": 2}, root, {"version": 4}])


def test_crio_names_the_program_of_each_runtime() -> None:
    runtimes = {"crun": {"runtime_path": "/usr/bin/crun"}, "nvidia": {"runtime_path": "/usr/bin/x"}}
    read = runtime_config.crio({"crio": {"runtime": {"default_runtime": "crun", "runtimes": runtimes}}})
    assert (read.default, read.binaries) == ("crun", {"crun": "/usr/bin/crun", "nvidia": "/usr/bin/x"})
    assert read.cdi


@pytest.mark.tools
def test_each_device_of_a_gpu_needs_its_link(tmp_path: Path) -> None:
    """Links to /dev/null (1:3), /dev/zero (1:5) and /dev/full (1:7) play the devices."""
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "char").mkdir()
    devices = {"nvidia0": "null", "nvidiactl": "zero", "nvidia-caps/nvidia-cap1": "full", "nvidia-fs0": "tty"}
    for name, device in devices.items():
        (tmp_path / name).symlink_to(f"/dev/{device}")
    (tmp_path / "char/1:5").symlink_to("../nvidiactl")
    (tmp_path / "char/1:3").symlink_to("../gone")
    host = testinfra.get_host("local://")
    expected_names = ["nvidia0", "nvidia-caps/nvidia-cap1"]
    assert unlinked_devices(host, str(tmp_path)) == [f"{tmp_path}/{name}" for name in expected_names]


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("580.95.05-1", "580.95.05"),
        ("535.261.03-1~deb12u1", "535.261.03"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("1.19.1-1", "1.19.1"),
        ("1.6.20~ds1-1+deb12u1", "1.6.20"),
    ],
)
def test_a_package_is_its_upstream_version(version: str, upstream: str) -> None:
    assert packages.upstream_version(version) == upstream


def test_packages_belong_together_by_the_version_of_their_carrier() -> None:
    installed = {
        "nvidia-driver-cuda": "580.95.05-1",
        "libnvidia-ml1": "580.95.05-1",
        "nvidia-container-toolkit": "1.19.1-1",
        "nvidia-modprobe": "535.54.03-1",
    }
    found = Packages(installed, frozenset()).matching(
        re.compile("nvidia-driver-cuda"), re.compile("(lib)?nvidia.*")
    )
    assert found == {"nvidia-driver-cuda", "libnvidia-ml1"}


LIST = """\
GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.20gb     Device  0: (UUID: MIG-2af3958e-6a7c-5b1f-8a39-5c1a70ad9a3f)
  MIG 2g.10gb     Device  1: (UUID: MIG-3a83b0a4-2b27-5d70-aa10-4bbde0d8cfcd)
  MIG 1g.5gb+me   Device  2: (UUID: MIG-70dc024a-e8d0-5587-81fa-8ea7ec0d3d0b)
GPU 1: Tesla T4 (UUID: GPU-1d4c6a5e-5b8a-4e7d-9c11-3f6f0b1f9f00)
"""


def test_the_list_has_each_gpu_with_its_slices() -> None:
    assert nvidia_smi.parse_list(LIST) == (
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
    assert dict(nvidia_smi.parse_list(LIST)[0].slices) == {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb+me": 1}


@pytest.mark.parametrize("text", ["", "\n", "No devices found.\n"])
def test_a_list_without_gpus_is_empty(text: str) -> None:
    assert nvidia_smi.parse_list(text) == ()


def test_an_invalid_list_is_refused_with_its_line() -> None:
    with pytest.raises(nvidia_smi.ParseError, match=r"`nvidia-smi -L` printed 'Segmentation fault'"):
        nvidia_smi.parse_list("Segmentation fault\n")


def test_query_has_none_for_what_a_gpu_does_not_have() -> None:
    text = (
        "0, GPU-5c89, NVIDIA A100-PCIE-40GB, 580.95.05, Enabled, Disabled\n"
        "1, GPU-1d4c, Tesla T4, 580.95.05, Disabled, [N/A]\n"
    )
    assert nvidia_smi.parse_query(text) == (
        QueriedGpu(0, "GPU-5c89", "NVIDIA A100-PCIE-40GB", "580.95.05", True, False),
        QueriedGpu(1, "GPU-1d4c", "Tesla T4", "580.95.05", False, None),
    )


def test_a_query_that_failed_quotes_its_line() -> None:
    with pytest.raises(nvidia_smi.ParseError, match="Unable to determine the device handle"):
        nvidia_smi.parse_query(
            "Unable to determine the device handle for GPU0: 0000:00:07.0: Unknown Error\n"
        )


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
