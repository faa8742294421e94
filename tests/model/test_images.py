"""The table of node images: every key, its preinstalled components, and how a pin becomes an AMI."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter

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
from infra.model.gpu.machines import MACHINES
from infra.model.gpu.models import GPUS

pytestmark = pytest.mark.unit

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
