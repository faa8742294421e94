"""The checks against the real nvidia-smi, with the library that GPUFORM_NVML_LIBRARY names.

Such a library is NVIDIA's mock (github.com/NVIDIA/k8s-test-infra, pkg/gpu/mocknvml: ``make NO_PADDING=1``);
nvidia-smi is beside it or on PATH (in Debian's package nvidia-smi). Without them only our own fake, with
our own output format, is tested.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuform.hosts.verify import verify
from tests.ansible.conftest import Beds
from tests.bed import Bed, Host
from tests.hosts import nvidia_smi

LIBRARY = os.environ.get("GPUFORM_NVML_LIBRARY", "")
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(not LIBRARY, reason="GPUFORM_NVML_LIBRARY names no libnvidia-ml.so"),
]

ROOT = Path(__file__).parents[2]
SCRIPT = '#!/bin/sh\nexec /usr/local/lib/fake-gpu/smi.py "$@"\n'  # the bed puts the real one behind it


@pytest.fixture(scope="module")
def machine(bed: Beds) -> Iterator[tuple[Bed, Host]]:
    own = bed(hosts=1)
    (host,) = own.hosts
    host.write("/usr/local/bin/nvidia-smi", SCRIPT)
    host.run("chmod +x /usr/local/bin/nvidia-smi")
    yield own, host
    own.down()


def test_what_it_prints_is_read(machine: tuple[Bed, Host]) -> None:
    _, host = machine
    listed = nvidia_smi.listed(host.out("nvidia-smi -L"))
    queried = nvidia_smi.queried(host.out(nvidia_smi.QUERY_COMMAND))
    table = nvidia_smi.table(host.out("nvidia-smi"))
    assert listed
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in listed] == [
        (gpu.index, gpu.name, gpu.uuid) for gpu in queried
    ]
    assert [gpu.index for gpu in table.gpus] == [gpu.index for gpu in listed]
    assert {gpu.driver_version for gpu in queried} == {table.driver_version}
    assert [gpu.persistence for gpu in table.gpus] == [gpu.persistence for gpu in queried]


def test_the_checks_that_ask_it_agree(machine: tuple[Bed, Host]) -> None:
    own, host = machine
    listed = nvidia_smi.listed(host.out("nvidia-smi -L"))
    driver = nvidia_smi.table(host.out("nvidia-smi")).driver_version
    inventory = own.inventory()
    variables = inventory["_meta"]["hostvars"][host.name]
    variables |= {
        "gpuform_pool": "real",
        "nvidia_driver_product": listed[0].name,
        "nvidia_driver_count": len(listed),
        "nvidia_driver_version": driver,
    }
    report = verify(inventory, ROOT)
    found = {one.check: one.fact or one.verdict for one in report.verdicts}
    assert (found["gpus"], found["driver_version"]) == ("PASS", "PASS")
    variables |= {"nvidia_driver_count": len(listed) + 1, "nvidia_driver_version": "1.2.3"}
    found = {one.check: one.fact for one in verify(inventory, ROOT).verdicts}
    assert found["driver_version"] == f"driver {driver} runs; 1.2.3 is pinned"
    name = listed[0].name
    assert found["gpus"] == f"nvidia-smi lists {len(listed)}x {name}; {len(listed) + 1}x {name} is declared"
