"""``gpuform check``: judges manifests that gpuform does not write against a stack's pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import AsJson, OnlyStack, say, show, warn

if TYPE_CHECKING:
    from gpuform.manifests.documents import Document, Keys
    from gpuform.manifests.finding import Finding
    from gpuform.manifests.pods import FoundPod


def check(
    stack: OnlyStack,
    file: Annotated[
        list[Path] | None,
        typer.Option("-f", "--file", help="Manifest, folder, or - for standard input. May be repeated."),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Add what is missing to the files; of standard input, to stdout.")
    ] = False,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="Namespace of objects that name none.")
    ] = "default",
    pod_path: Annotated[
        list[str] | None,
        typer.Option(help="KIND=PATH of a pod spec that is not found, as Foo=spec.pod. May be repeated."),
    ] = None,
    explain_pool: Annotated[
        str, typer.Option("--explain", metavar="POOL", help="Print what a manifest needs to run on a pool.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Judge Kubernetes manifests against the stack's pools: resources, taints, selectors, room, queues.

    Reads YAML and JSON, also the output of `helm template` and `kustomize build`. Asks no cluster.
    Exit code 1 if a finding is an error: its pods would not start, or not get what they ask for.
    """
    from gpuform.manifests import documents, explain, judge

    env = load_environment(stack, Paths.here())
    if explain_pool:
        typer.echo(explain.lines(env, explain_pool), nl=False)
        return
    if not file:
        raise InputError("-f", "is missing", "name a manifest, a folder, or - for standard input")
    if fix and as_json and Path(documents.STDIN) in file:
        remedy = "leave out --fix or --json, or name a file"
        raise InputError("--json", "standard output would have the manifest and the findings", remedy)
    texts = documents.read_files(file)
    for chart in documents.charts(file):
        warn(f"note: chart {chart} is not read: helm template {chart} | gpuform check STACK -f -")
    everything, unread = documents.parse_each(texts)
    if unread and (fix or as_json):
        raise unread
    paths = dict(map(_pod_path, pod_path or ()))
    result = judge.judge(env, _pods(everything, paths), everything, namespace)
    findings = result.findings
    if fix:
        findings = _fix(texts, findings)
    if as_json:
        found = [one.to_json() for one in findings]
        show(True, {"stack": stack, "pods": len(result.pods), "findings": found}, ())
    else:
        put = warn if fix and documents.STDIN in texts else say
        for line in _lines(findings):
            put(line)
        put(_summary(len(everything), len(result.pods), findings))
    if unread:
        raise unread
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


def _pod_path(text: str) -> tuple[str, Keys]:
    kind, _, path = text.partition("=")
    if not kind or not path:
        raise InputError("--pod-path", f"{text!r} is not KIND=PATH", "give it as Foo=spec.pod")
    return kind, tuple(int(part) if part.isdecimal() else part for part in path.split("."))


def _pods(everything: Sequence[Document], paths: dict[str, Keys]) -> Iterator[FoundPod]:
    from gpuform.manifests.pods import at, find

    used = set()
    for document in everything:
        if document.kind in paths and (pod := at(document, paths[document.kind])):
            used.add(document.kind)
            yield pod
        else:
            yield from find(document)
    for kind in sorted({*paths} - used):
        raise InputError("--pod-path", f"no {kind} has a pod spec there", "correct it, or leave it out")


def _fix(texts: dict[str, str], findings: Sequence[Finding]) -> list[Finding]:
    """Write what is missing into the files; returns the findings that are left, in their order."""
    from gpuform.manifests import documents, edit

    fixed: set[int] = set()
    for name, text in texts.items():
        of_file = [one for one in findings if one.document.file == name and one.additions]
        result, left_out = edit.add(name, text, [item for one in of_file for item in one.additions])
        reasons = {(id(item.document), item.keys): reason for item, reason in left_out}
        for finding in of_file:
            why = [
                reasons[key]
                for item in finding.additions
                if (key := (id(item.document), item.keys)) in reasons
            ]
            if why:
                line, column = finding.document.place(finding.keys)
                warn(f"{name}:{line}:{column}: {finding.path}: not fixed: {why[0]}")
            else:
                fixed.add(id(finding))
        if name == documents.STDIN:
            typer.echo(result, nl=False)
        elif result != text:
            Path(name).write_text(result, encoding="utf-8", newline="")
            warn(f"{name}: fixed")
    return [finding for finding in findings if id(finding) not in fixed]


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    for (name, title), group in groupby(findings, lambda one: (one.document.file, one.document.title)):
        yield f"{name}: {title}"
        for finding in group:
            line, column = finding.document.place(finding.keys)
            yield f"  {line}:{column}: {finding.level}: {finding.path}: {finding.fact}; {finding.remedy}"


def _summary(objects: int, pods: int, findings: Sequence[Finding]) -> str:
    errors = sum(finding.level == "error" for finding in findings)
    found = f"{count_of(errors, 'error')}, {count_of(len(findings) - errors, 'warning')}"
    fixable = sum(bool(finding.additions) for finding in findings)
    hint = f"; --fix corrects {fixable}" if fixable else ""
    return f"{count_of(objects, 'object')}, {count_of(pods, 'pod template')} with GPUs: {found}{hint}"
