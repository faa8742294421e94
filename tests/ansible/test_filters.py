"""The roles' filters for containerd's configuration and for keys, compared with NVIDIA's tool and gpg."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from ansible.errors import AnsibleFilterError

from gpuform.checkout.paths import Paths
from lab.toolchain import Toolchain

pytestmark = pytest.mark.tools

ROLES = Path(__file__).parents[2] / "ansible/roles"
CRI = "io.containerd.grpc.v1.cri"
CRUN = f'[plugins."{CRI}".containerd.runtimes.crun]\nruntime_type = "io.containerd.runc.v2"\n'
DEFAULT = f'version = 2\n[plugins."{CRI}".containerd]\ndefault_runtime_name = "{{}}"\n'
RUNTIME = "/usr/bin/nvidia-container-runtime"
MAIN, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"
WITH_RUNC = f"""\
version = 2
[plugins."{CRI}"]
sandbox_image = "pause"
[plugins."{CRI}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."{CRI}".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def load(role: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROLES / role / "filter_plugins" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


engines = load("nvidia_container_toolkit", "container_engines")
openpgp = load("signed_repository", "openpgp")


def files(*texts: str) -> list[dict[str, str]]:
    paths = [MAIN, *(f"/etc/containerd/conf.d/{number}.toml" for number in range(len(texts)))]
    return [{"path": path, "text": text} for path, text in zip(paths, texts, strict=False)]


RUNTIME_V1 = "io.containerd.cri.v1.runtime"


def in_version(version: int, text: str = WITH_RUNC) -> str:
    return text.replace("version = 2", f"version = {version}").replace(
        CRI, CRI if version == 2 else RUNTIME_V1
    )


@pytest.mark.parametrize("cdi", [False, True])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_drop_in_is_that_of_nvidia_ctk_where_runc_is_declared(
    tmp_path: Path, version: int, cdi: bool
) -> None:
    text = in_version(version)
    (tmp_path / "config.toml").write_text(text)
    command = [str(Toolchain(Paths.here()).path("nvidia-ctk")), "--quiet", "runtime", "configure"]
    command += ["--runtime=containerd", f"--config={tmp_path}/config.toml"]
    command += [f"--drop-in-config={tmp_path}/drop-in.toml", *(["--cdi.enabled"] if cdi else [])]
    subprocess.run(command, check=True, capture_output=True)
    theirs = tomllib.loads((tmp_path / "drop-in.toml").read_text())
    engine = {2: "1.6.20", 3: "2.0.0", 4: "2.3.4"}[version]
    ours = tomllib.loads(engines.containerd_drop_in(files(text), engine, cdi, False, RUNTIME))
    (section,) = ours["plugins"].values()
    assert section["containerd"].pop("default_runtime_name") == "runc"
    assert ours == theirs


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "default", "runtimes"),
    [
        ("", "runc", {"runc", "nvidia"}),
        ("version = 2\n", "runc", {"runc", "nvidia"}),
        (WITH_RUNC, "runc", {"runc", "nvidia"}),
        (DEFAULT.format("nvidia"), "runc", {"runc", "nvidia"}),
        (DEFAULT.format("crun") + CRUN, "crun", {"crun", "nvidia"}),
    ],
)
def test_the_default_runtime_stays_and_is_never_nvidia(text: str, default: str, runtimes: set[str]) -> None:
    made = tomllib.loads(engines.containerd_drop_in(files(text), "1.6.20", False, True, RUNTIME))
    engine = made["plugins"][CRI]["containerd"]
    assert engine["default_runtime_name"] == default
    assert set(engine["runtimes"]) == runtimes
    assert engine["runtimes"]["nvidia"]["options"]["BinaryName"] == RUNTIME


@pytest.mark.unit
def test_a_choice_of_cgroups_is_kept_and_a_missing_one_made() -> None:
    def chosen(text: str) -> object:
        made = tomllib.loads(engines.containerd_drop_in(files(text), "1.6.20", False, True, RUNTIME))
        return made["plugins"][CRI]["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"]

    assert chosen(WITH_RUNC) is False
    assert chosen("version = 2\n") is True


@pytest.mark.unit
def test_the_section_of_the_last_file_is_the_one_in_force() -> None:
    later = f'version = 2\n[plugins."{CRI}"]\nsandbox_image = "other"\n'
    made = tomllib.loads(engines.containerd_drop_in(files(WITH_RUNC, later), "1.6.20", False, False, RUNTIME))
    assert made["plugins"][CRI]["sandbox_image"] == "other"


OURS = "/etc/containerd/conf.d/*.toml"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", f'version = 2\nimports = ["{OURS}"]\n'),
        ("# none yet\n", f'# none yet\nversion = 2\nimports = ["{OURS}"]\n'),
        ("version = 2\nroot = '/x' # y\n", f"version = 2\nimports = [\"{OURS}\"]\nroot = '/x' # y\n"),
        (f'imports = ["{OURS}"]\nversion = 2\n', None),
        ('version = 2\nimports = ["conf.d/*.toml"]\n', None),
        ('version = 2\nimports = ["/a/*"]\n', f'version = 2\nimports = ["/a/*", "{OURS}"]\n'),
        (
            "version = 2\nimports = [\n  '/a', # one\n]\n[debug]\n",
            f'version = 2\nimports = ["/a", "{OURS}"]\n[debug]\n',
        ),
    ],
)
def test_of_the_main_file_only_the_imports_are_touched(text: str, wanted: str | None) -> None:
    made = engines.containerd_main(files(text), "1.6.20", MAIN, DROP_IN)
    assert made == (text if wanted is None else wanted)
    assert engines.containerd_main(files(made), "1.6.20", MAIN, DROP_IN) == made


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "engine", "version"),
    [
        ("", "1.7.28", 2),
        ("", "2.0.0", 3),
        ("", "2.3.4", 3),  # every containerd 2 reads it
        ("version = 2\n", "2.3.4", 2),  # 2.3 refuses a drop-in of a higher version than its file
        ("version = 3\n", "2.3.4", 3),
        ("version = 4\n", "2.3", 4),
        ("version = 4\n", "3.1.0", 4),
    ],
)
def test_the_drop_in_has_the_version_of_the_file(text: str, engine: str, version: int) -> None:
    made = tomllib.loads(
        engines.containerd_drop_in(files(text) if text else [], engine, False, True, RUNTIME)
    )
    assert made["version"] == version
    assert list(made["plugins"]) == [CRI if version == 2 else RUNTIME_V1]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "engine", "said"),
    [
        ("version = 5\n", "2.6.0", "version 5, which is newer than those known here (2, 3, 4); write it in"),
        ("version = 4\n", "2.2.1", "version 4, which containerd reads from 2.3 on, and 2.2.1 is"),
        ("version = 4\n", "2.2.1", "installed; write it in version 3, or install containerd 2.3"),
        ("version = 4\n", "1.7.28", "installed; write it in version 2, or install containerd 2.3"),
        ("version = 3\n", "1.7.28", "installed; write it in version 2, or install containerd 2.0"),
        ("version = 1\n", "2.3.4", "is configuration version 1, which does not support drop-ins; "),
        ("version = 0\n", "2.3.4", "is configuration version 0, which does not support drop-ins; "),
        ("root = '/x'\n", "2.3.4", "is configuration version 1, which does not support drop-ins; "),
        ('version = "3"\n', "2.3.4", "its version '3' is not a whole number; write it as `version = 3`"),
        ("version = 3.0\n", "2.3.4", "its version 3.0 is not a whole number; write it as `version = 3`"),
        ("version = true\n", "2.3.4", "its version True is not a whole number; write it as `version = 3`"),
    ],
)
def test_a_version_that_is_too_new_is_told_apart_from_one_that_is_too_old(
    text: str, engine: str, said: str
) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        engines.containerd_drop_in(files(text), engine, False, False, RUNTIME)
    assert str(error.value).startswith(f"{MAIN}: ")
    assert said in str(error.value)


def dump(version: int, section: str, **more: object) -> str:
    cri = {"containerd": {"runtimes": {"nvidia": {"options": {"BinaryName": RUNTIME}}}}, "added": True}
    dumped: str = engines.to_toml({"version": version, "plugins": {section: cri, **more}})
    return dumped


@pytest.mark.unit
@pytest.mark.parametrize(
    ("dumped", "faults"),
    [
        (dump(2, CRI), []),
        (dump(3, RUNTIME_V1), []),
        (dump(4, RUNTIME_V1), []),
        (dump(5, RUNTIME_V1), []),  # a newer containerd that keeps the name of the section
        (dump(5, "io.containerd.cri.v2.runtime"), ["`containerd config dump` has version 5, which is newer"]),
    ],
)
@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_drop_in_is_looked_for_in_a_dump_of_any_version(
    version: int, dumped: str, faults: list[str]
) -> None:
    section = CRI if version == 2 else RUNTIME_V1
    drop_in = {"containerd": {"runtimes": {"nvidia": {"options": {"BinaryName": RUNTIME}}}}}
    text = engines.to_toml({"version": version, "plugins": {section: drop_in}})
    found = engines.containerd_faults(dumped, text)
    assert len(found) == len(faults)
    assert all(said in one for said, one in zip(faults, found, strict=True))


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version = 2\nx = [\n", f"{MAIN}: is not TOML: "),
        ('[plugins.cri]\nx = "x"\n', f"{MAIN}: is configuration version 1, which does not support drop-ins"),
        (
            'version = 2\nimports = [ # ]\n "/a" ]\n',
            f'{MAIN}: its imports could not be extended; write `imports = ["/a", "{OURS}"]`',
        ),
    ],
)
def test_an_unusable_configuration_is_refused_with_its_fault(text: str, said: str) -> None:
    def work() -> None:
        engines.containerd_drop_in(files(text), "1.6.20", False, False, RUNTIME)
        engines.containerd_main(files(text), "1.6.20", MAIN, DROP_IN)

    with pytest.raises(AnsibleFilterError) as error:
        work()
    assert said in str(error.value)


@pytest.mark.unit
def test_toml_is_read_back_as_it_was_written() -> None:
    inner = {"e": True, "f": {"g": 'quote " and \\ and \n'}}
    table = {"a": 1, "b": [1, 2.5, "x"], "c d": inner, "h": {}, "i": [{"j": 1}]}
    assert tomllib.loads(engines.to_toml(table)) == table


@pytest.mark.unit
def test_what_a_distribution_wrote_is_read_in_each_version() -> None:
    """Version 3 has a part of the older section beside the one that counts."""
    found = """\
version = {}
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_port = "10010"
[plugins.'{}'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'{}'.containerd.runtimes.'nvidia'.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""
    for version, cdi in ((2, False), (3, True)):
        text = found.format(version, *[engines.FORMATS[version].section] * 2)
        assert engines.containerd_nvidia(text) == "/usr/bin/nvidia-container-runtime"
        assert engines.containerd_nvidia(text.partition("[plugins.'io.containerd")[0]) == ""
        assert engines.containerd_cdi(text) is cdi
    assert engines.containerd_nvidia("") == ""


@pytest.mark.parametrize("kind", ["ed25519", "rsa3072"])
def test_a_fingerprint_is_that_of_gpg(kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="gpg-") as home:

        def gpg(*args: str) -> str:
            command = ["gpg", "--batch", "--quiet", "--homedir", home, *args]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        try:
            gpg("--passphrase", "", "--quick-generate-key", "a <a@localhost>", kind, "sign", "never")
            listed = gpg("--with-colons", "--fingerprint", "--list-keys").splitlines()
            armored = gpg("--armor", "--export")
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)
    assert openpgp.key_fingerprints(armored) == [
        line.split(":")[9] for line in listed if line.startswith("fpr:")
    ]
    lines = armored.splitlines()
    short = "\n".join([*lines[:2], lines[2][:40], lines[-1]])
    with pytest.raises(AnsibleFilterError, match="truncated or of an unknown format"):
        openpgp.key_fingerprints(short)


@pytest.mark.unit
@pytest.mark.parametrize("text", ["", "not a key", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n"])
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(AnsibleFilterError, match="is not one armored public key"):
        openpgp.key_fingerprints(text)
