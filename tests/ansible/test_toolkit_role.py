"""The role nvidia_container_toolkit on a booted host, with the distribution's own containerd (1.6)."""

from __future__ import annotations

import tomllib

import pytest

from tests.ansible.conftest import BedFactory
from tests.ansible.plays import Role
from tests.bed.host import Host

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

MAIN, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
CRI = "io.containerd.grpc.v1.cri"
PACKAGES = (
    "libnvidia-container-tools libnvidia-container1 nvidia-container-toolkit nvidia-container-toolkit-base"
)
# A third-party file with a comment, an import and a setting of the section that the drop-in repeats.
THEIRS = f"""\
# kept by hand
version = 2
imports = [
  "/etc/containerd/more/*.toml",
]

[plugins."{CRI}"]
  sandbox_image = "registry.example/pause:3.9"  # ours
"""


@pytest.fixture(scope="module")
def toolkit(bed: BedFactory, tmp_path_factory: pytest.TempPathFactory) -> Role:
    made = bed(1)
    repository = made.furnish_repository(drivers=(), toolkits=("1.17.8", "1.19.1"), cuda=())
    return Role(
        tmp_path_factory.mktemp("toolkit"),
        made,
        "nvidia_container_toolkit",
        nvidia_container_toolkit_version="1.19.1",
        nvidia_container_toolkit_repository=repository.variables,
    )


@pytest.fixture(scope="module")
def host(toolkit: Role) -> Host:
    """The role's host, checked bare first: the starting point of later tests."""
    result = toolkit.play(check=True)
    assert result.ok, result.message
    assert result.changed
    host = toolkit.bed.hosts[0]
    assert host.run("command -v nvidia-ctk containerd", check=False).returncode, "a check installed something"
    result = toolkit.play()
    assert result.ok, result.message
    return host


def effective(host: Host) -> dict[str, object]:
    found: dict[str, object] = tomllib.loads(host.out("containerd config dump"))["plugins"][CRI]
    return found


def runtimes(host: Host) -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = effective(host)["containerd"]["runtimes"]  # type: ignore[index]
    return found


def cri(host: Host) -> str:
    return host.out("ctr plugins ls | awk '$2 == \"cri\" {print $NF}'")


def test_toolkit_is_installed_and_configured_on_a_bare_host(host: Host, toolkit: Role) -> None:
    assert host.out("dpkg-query -W -f '${Version} ' " + PACKAGES).split() == ["1.19.1-1"] * 4
    assert host.out("apt-mark showhold").split() == PACKAGES.split()
    assert runtimes(host)["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"
    assert set(runtimes(host)) == {"runc", "nvidia"}
    assert effective(host)["containerd"]["default_runtime_name"] == "runc"  # type: ignore[index]
    assert runtimes(host)["runc"]["options"]["SystemdCgroup"] is True
    assert cri(host) == "ok"
    settings = tomllib.loads(host.out("cat /etc/nvidia-container-runtime/config.toml"))
    assert settings["accept-nvidia-visible-devices-envvar-when-unprivileged"] is False
    assert settings["accept-nvidia-visible-devices-as-volume-mounts"] is True
    assert "/usr/bin/nvidia-ctk system" in host.out("cat /etc/udev/rules.d/71-nvidia-dev-char.rules")
    units = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
    assert host.out(f"systemctl is-enabled {units}").split() == ["enabled", "enabled"]
    assert host.out("systemctl is-active nvidia-cdi-refresh.path containerd").split() == ["active", "active"]


def test_what_nvidia_ctk_writes_for_this_containerd_takes_runc_away(host: Host, toolkit: Role) -> None:
    """Why the drop-in is not left to `nvidia-ctk runtime configure`."""
    host.run(f"rm {DROP_IN} && nvidia-ctk --quiet runtime configure --runtime=containerd")
    host.run("systemctl restart containerd")
    assert set(runtimes(host)) == {"nvidia"}
    assert cri(host) == "error"
    result = toolkit.play()
    assert result.ok, result.message
    assert set(runtimes(host)) == {"runc", "nvidia"}
    assert cri(host) == "ok"


def test_configuration_of_others_is_kept(host: Host, toolkit: Role) -> None:
    host.write(MAIN, THEIRS)
    host.write("/etc/containerd/more/debug.toml", 'version = 2\n[debug]\n  level = "warn"\n')
    result = toolkit.play()
    assert result.ok, result.message
    line = 'imports = ["/etc/containerd/more/*.toml", "/etc/containerd/conf.d/*.toml"]'
    before, after = THEIRS.split('imports = [\n  "/etc/containerd/more/*.toml",\n]')
    assert host.out(f"cat {MAIN}") + "\n" == before + line + after
    assert effective(host)["sandbox_image"] == "registry.example/pause:3.9"
    assert set(runtimes(host)) == {"runc", "nvidia"}
    assert cri(host) == "ok"
    assert toolkit.play().changed == 0


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("/etc/containerd/conf.d/50-bad.toml", "version = 2\n[plugins\n", "is not TOML"),
        (
            "/etc/containerd/conf.d/zz-later.toml",
            f'version = 2\n[plugins."{CRI}"]\n  sandbox_image = "other"\n',
            "has no effect: another file of the imports replaces it",
        ),
        (
            "/etc/containerd/conf.d/60-type.toml",
            'version = 2\noom_score = "high"\n',
            "as declared, so nothing was changed: containerd: failed to unmarshal TOML",
        ),
        (MAIN, f'disabled_plugins = ["{CRI}"]\nversion = 2\n', "switches the CRI plugin off"),
        (MAIN, '[plugins.cri]\nsandbox_image = "x"\n', "is configuration version 1"),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_touched(
    host: Host, toolkit: Role, path: str, text: str, said: str
) -> None:
    running = host.out("systemctl show -P MainPID containerd")
    kept = host.out(f"cat {MAIN}") + "\n"
    drop_in = host.out(f"cat {DROP_IN}")
    host.write(path, text)
    try:
        result = toolkit.play()
        assert not result.ok
        assert said in result.message
        assert host.out(f"cat {path}") + "\n" == text
        assert host.out(f"cat {DROP_IN}") == drop_in
        assert host.out("systemctl show -P MainPID containerd") == running
        assert cri(host) == "ok"
    finally:
        host.run(f"rm {path}")
        host.write(MAIN, kept)


def test_an_engine_that_does_not_come_back_gets_its_old_configuration(host: Host, toolkit: Role) -> None:
    """containerd accepts the file, but its service does not start with it: the old file is restored."""
    broken = "/etc/systemd/system/containerd.service.d/broken.conf"
    host.write(broken, f"[Service]\nExecStartPre=/bin/sh -c '! grep -q nvidia {DROP_IN}'\n")
    runc = f'[plugins."{CRI}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    host.write(DROP_IN, f"version = 2\n{runc}")
    before = host.out(f"cat {DROP_IN}")
    result = toolkit.play()
    assert not result.ok
    assert "did not come back with the new configuration, and runs with the old one again" in result.message
    assert host.out(f"cat {DROP_IN}") == before
    assert host.out("systemctl is-active containerd") == "active"
    host.run(f"rm {broken} && systemctl daemon-reload")
    assert toolkit.play().ok
    assert set(runtimes(host)) == {"runc", "nvidia"}


def test_a_restart_that_an_earlier_run_did_not_come_to_is_done(host: Host, toolkit: Role) -> None:
    running = host.out("systemctl show -P MainPID containerd")
    host.run(f"touch -d '+2 seconds' {DROP_IN}; sleep 3")
    result = toolkit.play()
    assert result.ok, result.message
    assert host.out("systemctl show -P MainPID containerd") != running
    assert toolkit.play().changed == 0


def test_variables_that_cannot_work_are_refused(host: Host, toolkit: Role) -> None:
    version, repository = "nvidia_container_toolkit_version", "nvidia_container_toolkit_repository"
    toolkit.refused(
        {
            "cdi": (
                {"nvidia_container_toolkit_mode": "cdi"},
                "knows no CDI, which came with 1.7; install a newer",
            ),
            "overwriting": ({version: "1.18.0"}, "overwrites the imports of containerd; use 1.18.1 or newer"),
            "open": (
                {version: "1.15.0"},
                "is open to CVE-2024-0132, CVE-2025-23266, CVE-2025-23359, CVE-2026-24260; use 1.19.1",
            ),
            "old": ({version: "1.17.8"}, "is open to CVE-2026-24260; use 1.19.1 or newer"),
            "key": (
                {repository: {**toolkit.variables[repository], "fingerprint": "0" * 40}},
                f"declared is {'0' * 40}",
            ),
        }
    )


def test_another_version_is_installed_only_as_declared(host: Host, toolkit: Role) -> None:
    """Down to the minimum version, which has no CDI units, and up again."""
    accepted = ["CVE-2026-24260"]
    result = toolkit.play(
        nvidia_container_toolkit_version="1.17.8", nvidia_container_toolkit_acknowledge=accepted
    )
    assert result.ok, result.message
    assert host.out("dpkg-query -W -f '${Version} ' " + PACKAGES).split() == ["1.17.8-1"] * 4
    assert host.out("systemctl is-enabled gpuform-cdi.service") == "enabled"
    host.run("apt-get -y upgrade")
    assert host.out("dpkg-query -W -f '${Version} ' " + PACKAGES).split() == ["1.17.8-1"] * 4
    result = toolkit.play()
    assert result.ok, result.message
    assert host.run("systemctl cat gpuform-cdi.service", check=False).returncode
    assert toolkit.play().changed == 0
