"""The environment of engine runs: the user's own Pulumi setup is neither read nor written."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import quote

from gpuform import INSTALLATION
from gpuform.checkout import writable
from gpuform.checkout.paths import Paths
from gpuform.engine import backend
from gpuform.engine.files import EngineFiles, Tools, link, tool, write
from gpuform.engine.standins import install, is_real

# Protects nothing: the state describes this machine only and is stored on it. Fixed, so that runs by hand and
# runs of gpuform can read each other's state.
PASSPHRASE = "gpuform-local"  # noqa: S105

# Set by the caller, or left in the shell by an offline run, one of these would misdirect the run.
UNSET_VARIABLES = (
    "GPUFORM_CHARTS",
    "GPUFORM_OFFLINE",
    "GPUFORM_OFFLINE_KUBECONFIG",
    "PULUMI_CONFIG_PASSPHRASE_FILE",
    "PULUMI_IGNORE_AMBIENT_PLUGINS",
    "PULUMI_OPTION_CONFIG_FILE",
    "PULUMI_OPTION_STACK",
    "PULUMI_OPTION_CWD",
    "PULUMI_DIY_BACKEND_GZIP",
    "PULUMI_DIY_BACKEND_ZSTD",
)


def engine_env(paths: Paths, toolchain: Tools, stack: str = "local", offline: bool = False) -> dict[str, str]:
    """Variables to set for engine runs by hand or by ``Engine``, on top of the caller's environment.

    Also installs the links in ``paths.shims`` and our plugins, and fetches a missing tool (errors as
    ``Toolchain.path``). A state that the stack file declares is used with the caller's own credentials and
    passphrase; InputError if it is invalid. ``offline`` runs have a home and a backend of their own, and
    stand-ins for AWS.
    """
    files = EngineFiles(paths, offline)
    declared = None if offline else backend.declared_state(paths.root, stack)
    file = paths.root / f"Pulumi.{stack}.yaml"
    may_download = not offline and is_real(file)
    install_tools(files, toolchain, stack)
    own_folders = [str(files.offline_commands), str(paths.shims)]
    other_folders = [entry for entry in os.get_exec_path() if entry not in own_folders]
    return {
        **({} if is_real(file) and not offline else {"GPUFORM_CHARTS": str(files.chart_finder)}),
        **(_offline_variables(files) if offline else {}),
        **_python_path(paths),
        **_clouds_yaml(paths),
        "PULUMI_HOME": str(files.home),
        **(backend.variables(declared) if declared else _local_backend(files)),
        "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_SUPPRESS_NEO_LINK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "false" if may_download else "true",
        "PULUMI_STACK": stack,
        "GPUFORM_PYTHON": sys.executable,  # read by gpuform/provider/own/pulumi-resource-gpuform
        "PULUMI_PYTHON_CMD": sys.executable,  # of the official language host, for projects without virtualenv
        "GPUFORM_STATE": str(paths.state),
        "GPUFORM_KUBECONFIG": str(paths.kubeconfig),  # read by the program
        "KUBECONFIG": str(paths.kubeconfig),
        "PATH": os.pathsep.join([*(own_folders if offline else own_folders[1:]), *other_folders]),
    }


def _local_backend(files: EngineFiles) -> dict[str, str]:
    return {
        "PULUMI_BACKEND_URL": backend.engine_address(f"file://{quote(str(files.backend))}"),
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    }


def _python_path(paths: Paths) -> dict[str, str]:
    """Lets a program of another checkout than the installed one import that checkout's packages."""
    if (paths.installation / "infra").resolve() == INSTALLATION / "infra":
        return {}
    return {"PYTHONPATH": str(paths.root)}


def _clouds_yaml(paths: Paths, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The checkout's clouds.yaml by its path: plugins run in the program's folder, and would not find it."""
    file = paths.root / "clouds.yaml"
    if environ.get("OS_CLIENT_CONFIG_FILE") or not file.is_file():
        return {}
    return {"OS_CLIENT_CONFIG_FILE": str(file)}


def _offline_variables(files: EngineFiles) -> dict[str, str]:
    return {
        "GPUFORM_OFFLINE": "1",
        "GPUFORM_OFFLINE_KUBECONFIG": str(files.paths.kubeconfig),
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",  # an official pulumi-resource-aws on PATH would call AWS
    }


def export_lines(env: Mapping[str, str]) -> str:
    """Shell lines that set this environment, quoted so that any path is safe to ``eval``."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sorted(env.items())]
    unset = backend.variables_to_unset(UNSET_VARIABLES, env, PASSPHRASE)
    return "\n".join([f"unset {' '.join(unset)}", *exports])


def install_tools(files: EngineFiles, tools: Tools, stack: str) -> None:
    writable.make_state(files.paths.state)
    files.backend.mkdir(parents=True, exist_ok=True)
    write(writable.version_file(files.paths.state), version("gpuform"), 0o644)
    for name in ("pulumi", "kubectl"):
        link(files.paths.shims / name, tool(files, tools, name))
    install(files, tools, stack)
