"""Runs one Pulumi program or plugin; started as a file by its interpreter, not by ours.

It ends with the host that started it, even after a kill -9 of that host. Imports only the standard library
and the ``pulumi`` SDK of that interpreter.

``runner.py KIND FOLDER ENGINE_ADDRESS...`` runs a plugin: KIND ``analyzer`` is a policy pack, others are run
as they are. Without arguments it runs the program of the request, one JSON object on stdin: configuration
may be larger than one environment variable. Exit code 0: success; 32: the program failed and the reason was
shown; anything else: the program ended the process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import runpy
import sys
import tomllib
import traceback
from asyncio.subprocess import PIPE
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

EXIT_SHOWN = 32  # the official host's code for "already told the user"
SIMULATED_OPERATOR = "charts/gpu-operator-sim"
_OPERATOR = "embedded/controllers/bin/gpu-operator"
THREADS_MAX = 256  # the engine asks for 2^31-1 when parallelism is unbounded


def main() -> int:
    del sys.path[0]  # the folder of this file: its modules must not shadow the program's
    _end_with_parent()
    if len(sys.argv) > 1:
        _run_plugin(*sys.argv[1:])
        return 0
    request: dict[str, Any] = json.load(sys.stdin)
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    try:
        import pulumi
        import pulumi.runtime
    except ImportError as error:
        print(
            f"{sys.executable} cannot import the Pulumi SDK: {error}; install the project's requirements "
            "into that interpreter",
            file=sys.stderr,
        )
        return EXIT_SHOWN
    pulumi.runtime.set_all_config(request["config"], request["secret_keys"])
    pulumi.runtime.configure(pulumi.runtime.Settings(**request["settings"]))
    os.chdir(request["pwd"])
    program = request["program"]
    sys.argv = [program, *request["args"]]
    # The SDK leaves futures behind when a program fails; asyncio's warnings would hide the reason.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    return _run(program, request["settings"]["parallel"], pulumi)


def _run_plugin(kind: str, folder: str, *args: str) -> None:
    """A plugin with a build backend is run as a module."""
    file, declared = Path(folder, "pyproject.toml"), {}
    if kind != "analyzer" and file.is_file():
        declared = tomllib.loads(file.read_text(encoding="utf-8"))
    name = declared.get("project", {}).get("name")
    if kind == "analyzer":
        sys.argv = ["pulumi.policy", *args, folder]
    elif name and declared.get("build-system", {}).get("build-backend"):
        sys.argv = ["pulumi.run.plugin", name, *args]
    else:
        sys.argv = [folder, *args]
        runpy.run_path(folder, run_name="__main__")
        return
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _run(program: str, parallel: int, pulumi: Any) -> int:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(max_workers=min(max(parallel, 1) * 4, THREADS_MAX))
    loop.set_default_executor(executor)
    try:
        loop.run_until_complete(pulumi.runtime.run_in_stack(lambda: _start(program)))
    except pulumi.RunError as error:
        if not _is_engine_shutdown(error):
            pulumi.log.error(str(error))
        return EXIT_SHOWN
    except Exception as error:
        if not _is_engine_shutdown(error):
            pulumi.log.error("Program failed with an unhandled exception:\n" + _trace(error))
        return EXIT_SHOWN
    finally:
        executor.shutdown(wait=True)
        loop.close()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _start(program: str) -> None:
    path = Path(program)
    main_file = path / "__main__.py" if path.is_dir() else path
    if not main_file.exists():
        import pulumi

        raise pulumi.RunError(f"no program to run: {main_file} does not exist")
    if finder := os.environ.get("GPUFORM_CHARTS"):
        use_local_charts(finder)
    runpy.run_path(program, run_name="__main__")


def use_local_charts(finder: str) -> None:
    """Replace the published chart of each Helm release of the program by a local stand-in.

    ``finder NAME VERSION`` prints the folder of the chart. Releases of a local chart stay as they are, but
    for the simulated operator's where NVIDIA's own one runs.
    """
    import pulumi
    import pulumi.runtime

    async def folder(chart: str, version: str) -> str:
        name = chart.rsplit("/", 1)[-1].split("@")[0].split(":")[0]
        process = await asyncio.create_subprocess_exec(finder, name, version, stdout=PIPE, stderr=PIPE)
        path, reason = await process.communicate()
        if process.returncode:
            raise pulumi.RunError(f"chart {chart}: no stand-in for it: {reason.decode().strip()}")
        return path.decode().strip()

    def transform(args: Any) -> Any:
        # The SDK's class has the second name.
        key = "repositoryOpts" if "repositoryOpts" in args.props else "repository_opts"
        chart, repository = args.props.get("chart"), args.props.get(key)
        if args.type_ != "kubernetes:helm.sh/v3:Release" or not isinstance(chart, str):
            return None
        if chart.endswith(SIMULATED_OPERATOR) and running_operator():
            chart = "gpu-operator"
        elif not repository and not chart.startswith("oci://"):
            return None
        # The program goes on while the chart is made.
        local_chart = {"chart": folder(chart, args.props.get("version") or ""), key: None}
        return pulumi.ResourceTransformationResult({**args.props, **local_chart}, args.opts)

    pulumi.runtime.register_stack_transformation(transform)


def running_operator() -> Path | None:
    """NVIDIA's own operator, if it runs beside the control plane of this run: `Layout.operator`."""
    program = Path(os.environ.get("GPUFORM_KUBECONFIG", "")).parent / _OPERATOR
    return program if program.exists() else None


def _is_engine_shutdown(error: Exception) -> bool:
    """Whether the error only follows from the engine's end of the run, for which it has given the reason."""
    return str(error).startswith(("Resource monitor has terminated", "resource monitor shut down"))


def _trace(error: BaseException) -> str:
    """The traceback without the frames above the user's code, which are the same in every failure.

    If no frame is the user's, as with an error inside an Output, the frames of the SDK are kept.
    """
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    users = [n for n, file in enumerate(files) if not _is_runner(file) and not _is_sdk(file)]
    if files and not users and not _is_runner(files[-1]):
        users = [n for n, file in enumerate(files) if not _is_runner(file)]
    shown: TracebackType | None = error.__traceback__
    for _ in range(users[0] if users else len(files)):
        shown = shown.tb_next if shown is not None else None
    return "".join(traceback.format_exception(type(error), error, shown))


def _is_runner(filename: str) -> bool:
    return (
        filename in (__file__, runpy.__file__)
        or filename.startswith("<frozen ")
        or "asyncio" in Path(filename).parts
    )


def _is_sdk(filename: str) -> bool:
    return Path(filename).parts[-3:-1] == ("pulumi", "runtime")


def _end_with_parent() -> None:
    """On Linux; elsewhere a plugin notices the end of its engine itself."""
    if sys.platform == "linux":
        import ctypes
        import signal

        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


if __name__ == "__main__":
    sys.exit(main())
