"""A user of plain Pulumi: with their own engine, login, plugins and passphrase, without our commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuform.checkout.paths import Paths
from gpuform.engine import engine_env
from lab.toolchain import Toolchain

_PLAYED = ("GPUFORM_CHARTS", "GPUFORM_OFFLINE", "GPUFORM_OFFLINE_KUBECONFIG")


class User:
    """A user with Pulumi and its plugins in ``home``, who works on one stack of a checkout.

    The plugins are the third-party ones of our engine runs and, with ``offline``, the stand-ins for AWS,
    Magnum and charts. Downloads are impossible.
    """

    def __init__(self, paths: Paths, stack: str, home: Path, offline: bool = False) -> None:
        tools = Toolchain(paths)
        ours = engine_env(paths, tools, stack, offline)
        for plugin in Path(ours["PULUMI_HOME"], "plugins").glob("*/pulumi-*"):
            if plugin.name != "pulumi-resource-gpuform":
                installed = home / "pulumi/plugins" / plugin.parent.name / plugin.name
                installed.parent.mkdir(parents=True)
                installed.symlink_to(plugin)
        (home / "bin").mkdir()
        (home / "bin/pulumi").symlink_to(tools.path("pulumi"))
        if offline:
            (home / "bin/aws").symlink_to(Path(ours["PATH"].split(os.pathsep)[0], "aws"))
        self._root, self._stack = paths.root, stack
        self._env = {
            "HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",  # without a virtual environment
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "PULUMI_HOME": str(home / "pulumi"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_CONFIG_PASSPHRASE": "mine",
            "GPUFORM_STATE": str(paths.state),  # the program's own folder links to another checkout
            **{name: value for name, value in ours.items() if name in _PLAYED},
        }
        (home / "state").mkdir()
        self._run("login", f"file://{home}/state")
        self._run("stack", "init", stack)

    def preview(self) -> str:
        return self._run("preview", "--stack", self._stack)

    def up(self) -> str:
        return self._run("up", "--yes", "--skip-preview", "--stack", self._stack)

    def _run(self, *words: str) -> str:
        command = ["pulumi", *words, "--color", "never", "--non-interactive"]
        done = subprocess.run(
            command, env=self._env, cwd=self._root, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout
