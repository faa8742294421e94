"""The platform for Argo CD and Flux: its order, and the controllers' objects."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.plan import gitops
from infra.strict_yaml import load_all
from tests.build.environments import on
from tests.components.programs import PROGRAMS, WORK, hosts_alone
from tests.fakes.recorder import Recorder, record_once

pytestmark = pytest.mark.unit

SEVERAL = ("lab", "local", "hosts alone", "workloads")
APPLIED = [name for name in PROGRAMS if name not in SEVERAL]


def recorded(program: str) -> Recorder:
    return record_once(PROGRAMS[program])


MORE: dict[str, Any] = {
    "monitoring": {},
    "queues": {"teams": [{"name": "team", "namespaces": ["lab"], "quota": {"t4": 1}}]},
    "priorities": {"high": 1000},
}


def environment(**more: Any) -> Environment:
    return on("existing", {"name": "t4", "machine": "g2.5xlarge"}, **MORE, **more)


def objects(text: str) -> list[dict[str, Any]]:
    return list(load_all(text))


def by_kind(files: dict[str, str], kind: str) -> dict[str, dict[str, Any]]:
    found = (item for text in files.values() for item in objects(text) if item["kind"] == kind)
    return {item["metadata"].get("name", ""): item for item in found}


def wave_of(env: Environment) -> dict[tuple[str, str, str], int]:
    """By kind, namespace and name; kind Release for releases."""
    found = {}
    for stage in gitops.stages(env):
        for release in stage.releases:
            found["Release", release.namespace, release.name] = stage.wave
        for item in stage.manifests:
            meta = item["metadata"]
            found[item["kind"], meta.get("namespace", ""), meta["name"]] = stage.wave
    return found


def in_program(recorder: Recorder) -> dict[str, tuple[str, str, str]]:
    """Kind, namespace and name of the objects and releases, by type and name of their resources."""
    found = {}
    for item in recorder.resources:
        kind = item.type.rpartition(":")[2]
        meta = item.inputs if kind == "Release" else item.inputs.get("metadata") or {}
        found[f"{item.type} {item.name}"] = kind, meta.get("namespace", ""), meta.get("name", "")
    return found


@pytest.mark.parametrize("program", APPLIED)
def test_what_the_program_makes_first_is_in_no_later_wave(program: str) -> None:
    waves, recorder = wave_of(parse(PROGRAMS[program])), recorded(program)
    made = in_program(recorder)
    # On nodes, and left to the engine; the program waits for the slices, the controller's pods do.
    compared = [item for item in recorder.resources if made[f"{item.type} {item.name}"] in waves]
    assert compared
    for item in compared:
        own = made[f"{item.type} {item.name}"]
        for key in item.after:
            if (earlier := made.get(key)) in waves:
                assert waves[earlier] <= waves[own], f"{own} needs {earlier}"
                if earlier[0] == "Release" and own[0] != "Release":
                    assert waves[earlier] < waves[own], f"{own} needs the CRDs of {earlier}"


@pytest.mark.parametrize("program", APPLIED)
def test_every_object_of_the_platform_is_applied_once_by_either(program: str) -> None:
    whole = {key for key in in_program(recorded(program)).values() if key[2]}
    left = record_once(PROGRAMS[program], only=("nodes", "layouts"))
    only = {key for key in in_program(left).values() if key[2]}
    waves = set(wave_of(parse(PROGRAMS[program])))
    assert not waves & only
    assert {key for key in whole if key[0] in {kind for kind, _, _ in waves}} <= waves | only


def test_every_wave_has_a_part() -> None:
    names = {
        stage.name.removesuffix("-objects")
        for program in APPLIED
        for stage in gitops.stages(parse(PROGRAMS[program]))
    }
    pooled = gitops.stages(
        on("existing", {"gpu": {"models": ["T4"], "count": 1}, "sharing": {"kind": "dra"}, "rdma": {}})
    )
    assert set(gitops.WAVES) - names - {stage.name for stage in pooled} <= {
        "notebooks",
        "admission",
        "runtime-class",
    }


def test_argo_cd_installs_a_chart_from_a_repository_or_a_registry() -> None:
    applications = by_kind(gitops.files(environment(), "argocd", ""), "Application")
    kueue = applications["e-kueue"]
    assert kueue["metadata"]["annotations"] == {"argocd.argoproj.io/sync-wave": "40"}
    assert (
        kueue["spec"]["source"].items()
        >= {
            "repoURL": "registry.k8s.io/kueue/charts",
            "chart": "kueue",
        }.items()
    )
    assert kueue["spec"]["destination"]["namespace"] == "kueue-system"
    operator = applications["e-gpu-operator"]["spec"]["source"]
    assert (operator["repoURL"], operator["chart"]) == ("https://helm.ngc.nvidia.com/nvidia", "gpu-operator")
    assert operator["helm"]["releaseName"] == "gpu-operator"
    assert operator["helm"]["valuesObject"]["operator"]


def test_argo_cd_keeps_namespaces_and_recreates_only_what_never_changes() -> None:
    work = [{**WORK, "kind": "job", "namespace": "lab", "queue": "team"}]
    files = gitops.files(environment(workloads=work), "argocd", "")
    options = {
        item["kind"]: item["metadata"]["annotations"].get("argocd.argoproj.io/sync-options")
        for text in files.values()
        for item in objects(text)
    }
    assert options["Namespace"] == "Prune=confirm,Delete=confirm"
    assert options["Job"] == options["PriorityClass"] == "Force=true,ServerSideApply=false"
    assert options["ClusterQueue"] == options["PrometheusRule"] == "SkipDryRunOnMissingResource=true"
    assert options["ConfigMap"] is None
    assert options["ClusterRole"] is None
    assert "pulumi.com" not in "".join(files.values())


def test_flux_applies_stage_after_stage_and_no_folder_by_itself() -> None:
    files = gitops.files(environment(), "flux", "clusters/prod/gpu")
    assert objects(files["kustomization.yaml"])[0]["resources"] == ["flux.yaml"]
    steps = {
        item["metadata"]["name"]: item["spec"]
        for item in objects(files["flux.yaml"])
        if item["kind"] == "Kustomization"
    }
    folders = {name.partition("/")[0] for name in files if "/" in name}
    assert {spec["path"] for spec in steps.values()} == {f"./clusters/prod/gpu/{name}" for name in folders}
    assert "dependsOn" not in steps["e-namespaces"]
    assert {"name": "e-queues"} in steps["e-queues-objects"]["dependsOn"]
    sources = by_kind(files, "HelmRepository")
    assert sources["e-registry-k8s-io-kueue-charts"]["spec"]["type"] == "oci"
    releases = by_kind(files, "HelmRelease")
    for item in releases.values():
        assert item["spec"]["chart"]["spec"]["sourceRef"]["name"] in sources
    assert releases["e-kueue"]["spec"]["targetNamespace"] == "kueue-system"
    prune = "kustomize.toolkit.fluxcd.io/prune"
    assert {item["metadata"]["annotations"][prune] for item in by_kind(files, "Namespace").values()} == {
        "disabled"
    }


def test_releases_of_one_part_come_one_after_another() -> None:
    env = parse(PROGRAMS["serving"])
    waves = [
        by_kind(gitops.files(env, "argocd", ""), "Application")[f"{env.name}-{name}"]["metadata"][
            "annotations"
        ]
        for name in ("cert-manager", "kserve-crd", "kserve")
    ]
    assert [wave["argocd.argoproj.io/sync-wave"] for wave in waves] == ["40", "41", "42"]
    last = by_kind(gitops.files(env, "flux", ""), "HelmRelease")[f"{env.name}-kserve"]
    assert last["spec"]["dependsOn"] == [{"name": f"{env.name}-kserve-crd"}]


def test_what_stays_with_the_engine_is_named() -> None:
    assert gitops.remaining(parse(PROGRAMS["aws-prod"]))[:2] == [
        "the cluster itself, and its guards against losses",
        "Karpenter, its NodePools and EC2NodeClasses",
    ]
    coloured = environment(
        workloads=[{**WORK, "replicas": 2, "update": {"kind": "blue_green"}, "service": {"port": 80}}]
    )
    assert gitops.remaining(coloured) == ["labels and taints of the nodes of t4"]
    assert list(gitops.lost(coloured)) == [
        "blue/green updates of w: a controller makes plain rolling updates"
    ]


@pytest.mark.parametrize(
    ("declared", "fact"),
    [(PROGRAMS["local"], "is applied on this machine"), (hosts_alone(), "have joined no cluster")],
)
def test_a_stack_that_no_controller_reaches_is_refused(declared: dict[str, Any], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        gitops.stages(parse(declared))
