"""Drivers, XIDs and node images: the tables, and the rules that their sources give."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter

from infra import facts
from infra.config import parse
from infra.model.aws.images import (
    IMAGES,
    ImageKey,
    alias,
    check_pin,
    is_alias,
    newest_parameter,
    ssm_parameter,
)
from infra.model.base.errors import InputError
from infra.model.base.quantities import version_numbers
from infra.model.checks.environment import warnings
from infra.model.gpu import drivers, xid
from infra.model.gpu.machines import BUILT_IN, MACHINES
from infra.model.gpu.models import GPUS
from infra.model.platform import installed
from infra.versions import GPU_DRIVER, GPU_DRIVER_OF_BRANCH, HOST_CONTAINER_TOOLKIT
from tests.build.environments import on

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", GPUS)
def test_mig_is_said_exactly_of_the_gpus_that_have_it(name: str) -> None:
    gpu = GPUS[name]
    assert (gpu.driver.mig is not None) == gpu.mig_capable
    assert gpu.driver.mig is None or version_numbers(gpu.driver.mig) >= version_numbers(gpu.driver.first)


def test_the_operators_own_drivers_are_of_known_branches() -> None:
    for version in (GPU_DRIVER, *GPU_DRIVER_OF_BRANCH.values()):
        assert drivers.branch(version) in drivers.BRANCHES
    assert tuple(sorted(set(drivers.BRANCHES))) == drivers.BRANCHES


@pytest.mark.parametrize(
    ("gpu", "version", "modules"),
    [
        ("V100", "580.95.05", "proprietary"),
        ("T4", "580.95.05", "open"),
        ("T4", "550.163.01", "proprietary"),
        ("A100-40GB", "560.35.05", "open"),
        ("A100-40GB", "525.60.11", "proprietary"),
        ("H100", "595.91.07", "open"),
        ("B200", "570.133.20", "open"),
    ],
)
def test_modules_follow_from_generation_and_branch(gpu: str, version: str, modules: str) -> None:
    found = BUILT_IN.gpu(gpu)
    assert found is not None
    assert drivers.recommended_modules(found, version) == modules
    assert modules in drivers.supported_modules(found, version)


def test_a_driver_that_breaks_efa_is_neither_chosen_nor_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By EC2's P4d, since the catalogue has no P6e: R595 breaks EFA there [NVIDIA/aicr#2383]."""
    assert installed.LAST_WITH_EFA == {"GB200": 580, "GB300": 580}
    monkeypatch.setattr(installed, "LAST_WITH_EFA", {"A100-SXM4-40GB": 580})

    def chosen(**operator: str) -> str:
        env = on("existing", {"name": "a100", "machine": "p4d.24xlarge"}, gpu_operator=operator)
        return installed.driver_version(env.gpu_operator, env.pools)

    assert chosen() == GPU_DRIVER_OF_BRANCH[580]
    assert chosen(driver_version="570.133.20") == "570.133.20"
    with pytest.raises(InputError) as refused:
        chosen(driver_version=GPU_DRIVER)
    assert str(refused.value) == (
        f"gpu_operator.driver_version: {GPU_DRIVER} does not support EFA with A100-SXM4-40GB (pool a100): "
        "its last branch is 580; use 580 or an older branch"
    )


@pytest.mark.parametrize("floor", facts.DRIVER_FLOORS.values(), ids=lambda row: row.fixed)
def test_a_driver_without_the_fixes_of_its_branch_gets_a_warning(floor: facts.Fix) -> None:
    """The remedy of each warning has none."""

    def warned(version: str) -> tuple[str, ...]:
        pool = {"name": "t4", "machine": "g2.5xlarge"}
        return warnings(on("existing", pool, gpu_operator={"driver_version": version}))

    old = f"{drivers.branch(floor.fixed)}.10.01"
    fact = f"gpu_operator.driver_version: {old} has vulnerabilities (NVIDIA {floor.id})"
    assert warned(old) == (f"{fact}; use {floor.fixed} or newer",)
    assert warned(floor.fixed) == ()


@pytest.mark.parametrize(
    ("version", "last", "said"),
    [
        ("570.211.01", None, "fixes for branch 570 ended on 2026-01-27; use 615.71.09, or another branch"),
        ("570.211.01", 580, "fixes for branch 570 ended on 2026-01-27; use 580.178.04, or another branch"),
        ("470.256.02", 470, ""),
        ("590.48.01", None, ""),
    ],
)
def test_a_branch_without_fixes_gets_a_warning_if_the_gpu_has_another(
    version: str, last: int | None, said: str
) -> None:
    found = list(drivers.advice(version, last, "driver"))
    assert [said in text for text in found] == ([True] if said else [])


def test_own_hosts_are_warned_once_of_a_driver_without_fixes() -> None:
    pool = {"gpu": {"models": ["T4"], "count": 1}}
    pools = [{"name": name, "hosts": [name], **pool} for name in ("a", "b")]
    cluster = {"kind": "hosts", "driver": {"source": "nvidia", "version": "580.95.05"}}
    env = parse({"name": "e", "cluster": cluster, "pools": pools})
    fact = "cluster.driver.version: 580.95.05 has vulnerabilities (NVIDIA bulletin 5861)"
    assert warnings(env) == (f"{fact}; use 580.178.04 or newer",)


@pytest.mark.parametrize(
    ("gpu", "count", "needed"),
    [
        ("H100", 8, True),
        ("H100", 4, False),
        ("H100-PCIe", 8, False),
        ("A100-80GB", 8, True),
        ("T4", 8, False),
    ],
)
def test_the_fabric_manager_is_for_boards_with_nvswitch(gpu: str, count: int, needed: bool) -> None:
    found = BUILT_IN.gpu(gpu)
    assert found is not None
    assert drivers.needs_fabric_manager(found, count) is needed


def test_the_toolkits_default_has_no_hole() -> None:
    assert drivers.open_cves(drivers.TOOLKIT_FIXES, HOST_CONTAINER_TOOLKIT) == ()
    assert facts.bad_release("container-toolkit", HOST_CONTAINER_TOOLKIT) is None


def test_versions_are_compared_as_numbers() -> None:
    assert version_numbers("570.9.1") < version_numbers("570.133.20") < version_numbers("580")


NOT_THE_APPLICATIONS = {48, 64, 74, 79, 95, 119, 120, 154}
DEVICE_PLUGIN_SKIPS = {13, 31, 43, 45, 68, 109}


def test_what_the_device_plugin_skips_is_the_applications() -> None:
    assert set(xid.DEVICE_PLUGIN_SKIPS) == DEVICE_PLUGIN_SKIPS
    assert {xid.XIDS[number].kind for number in DEVICE_PLUGIN_SKIPS} == {"application"}


def test_faults_of_the_hardware_are_not_the_applications() -> None:
    assert {xid.XIDS[number].kind for number in NOT_THE_APPLICATIONS} <= {"reset", "replace"}
    assert xid.XIDS[79].kind == "replace"


def test_where_sources_differ_the_table_says_so() -> None:
    """63 and 94 are NVIDIA's word; the EKS agent calls 63 and 109 fatal, the catalogue resets after 109."""
    assert (xid.XIDS[63].kind, xid.XIDS[94].kind) == ("informational", "application")
    assert "EKS agent: fatal" in xid.XIDS[63].disagreements
    assert "EKS agent: fatal" in xid.XIDS[109].disagreements
    assert "catalogue: reset" in xid.XIDS[109].disagreements
    assert "out of allocatable" in xid.XIDS[94].disagreements
    assert xid.XIDS[48].disagreements == xid.XIDS[13].disagreements == ""


def test_all_that_eks_calls_fatal_is_known() -> None:
    assert set(xid.XIDS) >= xid.EKS_FATAL


def test_classes_divide_the_table() -> None:
    every = [number for kind in xid.CLASSES for number in xid.numbers(kind)]
    assert sorted(every) == sorted(xid.XIDS)
    assert 999 not in xid.XIDS
    assert set(xid.ACTIONS) == set(xid.CLASSES)


def test_a_row_is_said_in_words_of_ours() -> None:
    for row in xid.XIDS.values():
        assert row.meaning == row.meaning.strip().rstrip(".")
        assert "ROBUST_CHANNEL" not in row.meaning


# Key: EKS's type, driver, toolkit, device plugin, from the project's facts, typed independently.
KNOWN = {
    "al2023": ("AL2023_x86_64_STANDARD", False, False, False),
    "al2023-nvidia": ("AL2023_x86_64_NVIDIA", True, True, False),
    "al2023-nvidia-arm64": ("AL2023_ARM_64_NVIDIA", True, True, False),
    "bottlerocket": ("BOTTLEROCKET_x86_64", False, False, False),
    "bottlerocket-nvidia": ("BOTTLEROCKET_x86_64_NVIDIA", True, True, True),
    "bottlerocket-nvidia-arm64": ("BOTTLEROCKET_ARM_64_NVIDIA", True, True, True),
}

EKS = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023"


def test_every_key_has_its_row() -> None:
    TypeAdapter(ImageKey).validate_python("al2023")
    assert set(get_args(ImageKey)) == set(IMAGES) == set(KNOWN)
    assert {
        key: (image.eks_ami_type, image.ships_driver, image.ships_toolkit, image.ships_device_plugin)
        for key, image in IMAGES.items()
    } == KNOWN


def test_eks_knows_every_type() -> None:
    botocore = pytest.importorskip("botocore.session")
    service = botocore.get_session().get_service_model("eks")
    assert {image.eks_ami_type for image in IMAGES.values()} <= set(service.shape_for("AMITypes").enum)


def test_bottlerocket_keeps_containers_on_a_second_disk() -> None:
    assert {image.family for image in IMAGES.values() if image.data_device} == {"Bottlerocket"}


BOTTLEROCKET = "/aws/service/bottlerocket/aws-k8s-1.34"
AL2023 = "amazon-eks-node-al2023-x86_64"


@pytest.mark.parametrize(
    ("key", "pin", "path"),
    [
        ("al2023-nvidia", "al2023@v20260801", f"{EKS}/x86_64/nvidia/{AL2023}-nvidia-1.34-v20260801/image_id"),
        ("al2023", "al2023@v20260801", f"{EKS}/x86_64/standard/{AL2023}-standard-1.34-v20260801/image_id"),
        ("bottlerocket-nvidia-arm64", "bottlerocket@1.50.0", f"{BOTTLEROCKET}-nvidia/arm64/1.50.0/image_id"),
        ("bottlerocket", "bottlerocket@v1.50.0", f"{BOTTLEROCKET}/x86_64/1.50.0/image_id"),
    ],
)
def test_where_the_ami_of_an_alias_is_found(key: ImageKey, pin: str, path: str) -> None:
    check_pin(IMAGES[key], pin)
    assert ssm_parameter(IMAGES[key], "1.34", pin) == path


NEWEST = "recommended/release_version"


@pytest.mark.parametrize(
    ("key", "path", "release", "pin"),
    [
        ("al2023-nvidia", f"{EKS}/x86_64/nvidia/{NEWEST}", "1.34.2-20260818", "al2023@v20260818"),
        ("bottlerocket-nvidia-arm64", f"{BOTTLEROCKET}-nvidia/arm64/latest/image_version",
         "1.64.0-1a2b3c4d", "bottlerocket@1.64.0"),
        ("al2023", f"{EKS}/x86_64/standard/{NEWEST}", "unknown", None),
    ],
)  # fmt: skip
def test_where_the_newest_image_is_found(key: ImageKey, path: str, release: str, pin: str | None) -> None:
    assert newest_parameter(IMAGES[key], "1.34") == path
    assert alias(IMAGES[key], release) == pin


@pytest.mark.parametrize("pin", ["ami-01234567", "ami-0123456789abcdef0"])
def test_an_ami_id_is_a_pin_of_any_family(pin: str) -> None:
    for image in IMAGES.values():
        check_pin(image, pin)
    assert not is_alias(pin)


@pytest.mark.parametrize(
    "pin", ["", "ami-0", "ami-0123456789ABCDEF0", "al2023@20260801", "bottlerocket@1.50"]
)
def test_what_is_no_pin(pin: str) -> None:
    for image in IMAGES.values():
        with pytest.raises(InputError, match="give an AMI id, or "):
            check_pin(image, pin)


def test_bottlerocket_cuts_gpus_that_ec2_sells_and_mig_knows() -> None:
    sold = {machine.gpu for machine in MACHINES.values() if machine.seller == "ec2"}
    assert {gpu.name for gpu in GPUS.values() if gpu.bottlerocket} <= sold
