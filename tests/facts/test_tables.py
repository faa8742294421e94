"""The tables of dated facts, and the list of those that are due for a check."""

from __future__ import annotations

import datetime
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from pydantic import TypeAdapter

from docs import facts as due
from infra import facts, versions
from infra.model.base.quantities import version_numbers

pytestmark = pytest.mark.unit

DAY = datetime.date(2026, 11, 29)


@pytest.mark.parametrize("table", facts.TABLES)
def test_each_row_has_a_source_and_a_day_that_has_been(table: str) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    for row in facts.TABLES[table]:
        hints = get_type_hints(type(row))
        for field in fields(row):
            TypeAdapter(hints[field.name]).validate_python(getattr(row, field.name), strict=True)
        assert re.match(r"\w[\w-]+[/. ].+", row.source), row
        assert datetime.date(2026, 11, 1) <= row.date <= today, row


def test_every_file_is_a_table_and_no_row_is_there_twice() -> None:
    assert {path.stem for path in facts.FOLDER.glob("*.yaml")} == set(facts.TABLES)
    for name, rows in facts.TABLES.items():
        text = (facts.FOLDER / f"{name}.yaml").read_text()
        assert len(rows) == len(re.findall("^- ", text, re.MULTILINE)) == len(set(map(repr, rows)))


def test_fixes_are_in_order_and_of_known_branches() -> None:
    """The newest fix of a product is its last row: messages and policies name it."""
    for product in ("container-toolkit", "gpu-operator"):
        fixed = [version_numbers(version) for version in facts.fixes(product).values()]
        assert fixed == sorted(fixed)
    assert set(facts.DRIVER_FLOORS) < set(facts.BRANCHES)
    assert list(facts.BRANCHES) == sorted(facts.BRANCHES)


def test_the_role_refuses_the_same_toolkits() -> None:
    variables = Path(__file__).parents[2] / "ansible/roles/nvidia_container_toolkit/vars/main.yml"
    fixed = yaml.safe_load(variables.read_text())["__nvidia_container_toolkit_fixed"]
    assert fixed == facts.fixes("container-toolkit")


def test_the_roles_know_the_same_distributions_and_systems() -> None:
    roles = Path(__file__).parents[2] / "ansible/roles"
    toolkit = yaml.safe_load((roles / "nvidia_container_toolkit/vars/main.yml").read_text())
    rows = {
        row.name: {"services": row.services, "config": row.config} for row in facts.DISTRIBUTIONS.values()
    }
    assert toolkit["__nvidia_container_toolkit_distributions"] == rows
    platform = yaml.safe_load((roles / "supported_platform/vars/main.yml").read_text())
    assert platform["__supported_platform_systems"] == {
        row.id: f"runs {row.name}, which has no packages that Ansible could install; {row.use}"
        for row in facts.IMAGE_SYSTEMS.values()
    }
    looked = (roles / "supported_platform/tasks/host.yml").read_text()
    services = [name for row in facts.DISTRIBUTIONS.values() for name in row.services]
    assert f"for unit in {' '.join(services)}; do" in looked


def test_our_own_pins_have_the_fixes() -> None:
    pinned = {
        "container-toolkit": (versions.CONTAINER_TOOLKIT, versions.HOST_CONTAINER_TOOLKIT),
        "gpu-operator": (versions.GPU_OPERATOR,),
        "device-plugin": (versions.DEVICE_PLUGIN,),
        "dcgm-exporter": (versions.DCGM_EXPORTER_CHART,),
    }
    for row in facts.FIXES:
        for version in pinned.get(row.product, ()):
            assert version_numbers(version) >= version_numbers(row.fixed), row
    for driver in (versions.GPU_DRIVER, *versions.GPU_DRIVER_OF_BRANCH.values()):
        floor = facts.DRIVER_FLOORS[version_numbers(driver)[0]]
        assert version_numbers(driver) >= version_numbers(floor.fixed)


def test_extended_support_is_a_year_more() -> None:
    """And the first images come in the month before a version, whose standard support lasts 14 months."""
    for row in facts.EKS_VERSIONS.values():
        assert row.released < row.date
        if row.standard and row.extended:
            assert row.extended == row.standard.replace(year=row.standard.year + 1)
            assert 410 < (row.standard - row.released).days < 430
    assert facts.EKS_VERSIONS["1.36"].first_images == datetime.date(2026, 5, 1)


def test_every_pin_is_compared_or_said_to_be_not() -> None:
    pins = {
        name
        for name, value in vars(versions).items()
        if name.isupper() and not name.startswith("_") and not name.endswith(("_IMAGE", "_REPOSITORY"))
    }
    assert pins == set(due.SOURCES)


ANSWERS = {
    "pip": "pulumi (3.999.0)\nAvailable versions: 3.999.0, 3.256.0, 4.0.0b1\n",
    "go": "k8s.io/kubernetes v1.34.4 v1.34.12 v1.99.0 v2.0.0-rc.1\n",
    "helm": "apiVersion: v2\nname: chart\nversion: v99.1.0\nappVersion: 1.0.0\n",
}


def test_what_is_due_is_listed() -> None:
    code, text = due.report(DAY, lambda source: ANSWERS[source[0]])
    assert code == due.DUE
    assert "90 days" not in text
    lines = text.splitlines()
    assert "PULUMI is 3.256.0, the newest release is 3.999.0" in lines
    assert (
        f"KUBE_SCHEDULER[1.34] is {versions.KUBE_SCHEDULER['1.34']}, the newest release is 1.34.12" in lines
    )
    assert not any(line.startswith("KUBE_SCHEDULER[1.33] is 1.33.13, the newest") for line in lines)
    assert f"KEDA is {versions.KEDA}, the newest release is 99.1.0" in lines
    assert "BUSYBOX is 1.37.0: no registry is asked" in lines


def test_what_no_registry_answers_is_not_due() -> None:
    code, text = due.report(DAY, lambda _: "")
    assert code == 0
    assert text.startswith("Pins not compared:\n")
    assert "HELM is " + versions.HELM + ": no answer from go helm.sh/helm/v3\n" in text


def test_rows_are_due_after_90_days() -> None:
    oldest = min(row.date for rows in facts.TABLES.values() for row in rows)
    assert due.old_rows(oldest + datetime.timedelta(days=90)) == []
    assert due.old_rows(oldest + datetime.timedelta(days=91))
    code, text = due.report(oldest + datetime.timedelta(days=200), lambda _: "")
    assert code == due.DUE
    assert len(due.old_rows(DAY + datetime.timedelta(days=100))) == sum(map(len, facts.TABLES.values()))
    assert text.startswith("Facts last checked more than 90 days ago:\nfixes.yaml: ")


def test_the_program_is_asked_with_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if command[0] == "go":
            raise FileNotFoundError
        return subprocess.CompletedProcess(command, 0, " ".join(command))

    monkeypatch.setattr(due.subprocess, "run", run)
    assert due.ask(("go", "example.org/none")) == ""
    assert due.ask(("helm", "a oci://example.org/charts")) == "helm show chart oci://example.org/charts/a"
    assert due.ask(("helm", "a https://example.org")) == "helm show chart a --repo https://example.org"
