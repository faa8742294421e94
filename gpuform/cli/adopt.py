"""``gpuform adopt``: an environment file for a cluster that others run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from gpuform.checkout.errors import InputError
from gpuform.cli.output import AsJson, cluster_failures, say, show, stack_of_new_file
from gpuform.cli.target import Context, Kubeconfig
from gpuform.reports import tables
from gpuform.usage.status import sharing_detail
from infra.config import KEY
from infra.strict_yaml import short_path

if TYPE_CHECKING:
    from gpuform.adopt.declare import Adopted

_WIDTH = 110
_COLUMNS = ("pool", "nodes", "GPUs", "sharing", "selector")


def adopt(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    dump: Annotated[
        Path | None, typer.Option("--from", help="Output of `kubectl get -o json`, or a folder with it.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File to write: Pulumi.STACK.yaml; never overwritten."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Declare a cluster that others run, as it is now; list what cannot be declared.

    Reads the cluster with get and list alone, and neither Secrets nor environment variables. Changes nothing.
    """
    from gpuform.adopt import declare, objects

    if (kubeconfig is None) == (dump is None):
        fact = "is given beside --kubeconfig" if dump else "is missing, and --kubeconfig too"
        raise InputError("--from", fact, "give one of the two")
    name = stack_of_new_file(output) if output else declare.NAME
    if kubeconfig:
        with cluster_failures(name, kubeconfig, "--kubeconfig"):
            found = objects.read_cluster(kubeconfig, context)
    else:
        assert dump is not None
        found = objects.read_dump(dump)
    cluster = declared_cluster(kubeconfig, context)
    with objects.well_formed(str(dump or kubeconfig)):
        result = declare.adopt(found, cluster, name)
    left_out = (*result.without_pool, *result.left_out)
    text = "\n".join(_lines(result.document, left_out))
    if output:
        output.write_text(text, encoding="utf-8")
    document = {
        "environment": result.document,
        "left_out": [
            {"subject": error.path, "fact": error.fact, "remedy": error.remedy} for error in left_out
        ],
        "file": str(output) if output else None,
    }
    if not output and not as_json:
        typer.echo(text, nl=False)
        return
    show(as_json, document, [tables.build_table("Pools", _COLUMNS, _rows(result), whole=_COLUMNS[:1])])
    if as_json:
        return
    for entry in left_out:
        say(f"not declared: {entry}")
    assert output is not None
    say(f"wrote {short_path(output)}; next: gpuform preview {name}")


def declared_cluster(kubeconfig: Path | None, context: str | None) -> dict[str, str]:
    """An environment's ``cluster``; with kubectl's usual kubeconfig for one that is known by a dump."""
    found = {"kind": "existing", "kubeconfig": _portable(kubeconfig or Path("~/.kube/config"))}
    return found | ({"context": context} if context else {})


def _portable(path: Path) -> str:
    """The path as a stack file names it: under the home folder with a tilde."""
    if str(path).startswith("~"):
        return str(path)
    absolute = path.absolute()
    return f"~/{absolute.relative_to(Path.home())}" if absolute.is_relative_to(Path.home()) else str(absolute)


def _rows(result: Adopted) -> Iterator[tuple[str, ...]]:
    for group in result.groups:
        pool = result.environment.pool(group.name)
        detail = sharing_detail(pool)
        text = f"{pool.sharing.kind}: {detail}" if detail else pool.sharing.kind
        gpus = f"{' or '.join(map(str, group.counts))} {group.gpus.model}"
        labels = "\n".join(f"{key}={value}" for key, value in group.selector.items())
        yield group.name, str(len(group.nodes)), gpus, text, labels


def _lines(document: Mapping[str, Any], left_out: Sequence[InputError]) -> Iterator[str]:
    """The stack file: comments first."""
    yield "# Found by `gpuform adopt` on a running cluster. An update keeps its sharing, drivers and taints."
    if left_out:
        yield "# Not declared:"
        yield from (f"#   {error}" for error in left_out)
    content = {"config": {KEY: document}}
    yield yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True)
