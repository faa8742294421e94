"""A release's inputs before anything is done: defaults, a name, and the chart rendered once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuform.plugins.handler import Call, Checked, PluginError, Properties
from gpuform.plugins.kubernetes.release_chart import checksum, locate
from gpuform.plugins.kubernetes.release_helm import Chart, Helm, HelmError
from gpuform.plugins.kubernetes.release_values import merged, without_nulls
from gpuform.plugins.properties import has_unknown, reveal, secret_strings
from infra import fast_yaml

TIMEOUT_S = 300  # the official provider's default for one release
COMPUTED = ("checksum", "resourceNames")


async def complete(
    call: Call, helm: Helm, namespace: str, name: str, olds: Properties, news: Properties
) -> Checked:
    """Fill in name, namespace, timeout, the local chart's checksum and the names of what the chart renders.

    The chart is rendered without a cluster, and only when something changed since ``olds``; what helm says
    against chart or values is a failure of the property ``chart``. With unknown values nothing is rendered.
    """
    inputs = {key: value for key, value in news.items() if value is not None and key not in COMPUTED}
    if "values" in inputs and not inputs.get("allowNullValues"):
        inputs["values"] = without_nulls(inputs["values"])
    inputs["name"] = inputs.get("name") or olds.get("name") or name
    inputs["namespace"] = inputs.get("namespace") or namespace
    if not inputs.get("skipAwait"):
        inputs.setdefault("timeout", TIMEOUT_S)
    if not inputs.get("chart"):
        return Checked(inputs, [("chart", "a release needs one: a path, a name or an oci:// reference")])
    if has_unknown({key: inputs.get(key) for key in ("chart", "repositoryOpts", "version")}):
        return Checked(inputs)
    plain = reveal({key: value for key, value in inputs.items() if not has_unknown(value)})
    try:
        chart, path = locate(plain)
        if path:
            inputs["checksum"] = checksum(path)
        if has_unknown(inputs):
            return Checked(inputs)
        if reveal(inputs) == reveal({key: value for key, value in olds.items() if key != "resourceNames"}):
            return Checked({**inputs, "resourceNames": olds.get("resourceNames") or {}})
        secrets = tuple(secret_strings(news))
        rendered = await _render(call, helm, chart, plain, secrets)
        inputs["resourceNames"] = resource_names(rendered)
    except (HelmError, PluginError) as error:
        return Checked(inputs, [("chart", f"{error}; check the chart, its repository and the values")])
    return Checked(inputs)


async def _render(
    call: Call, helm: Helm, chart: Chart, plain: Mapping[str, Any], secrets: tuple[str, ...]
) -> str:
    values = merged(plain)
    if plain.get("lint"):
        await _lint(helm, chart, values, secrets)
    args = ["template", plain["name"]]
    flags = ["--namespace", plain["namespace"], *rendering_flags(plain)]
    flags += [] if plain.get("skipCrds") else ["--include-crds"]
    flags += ["--no-hooks"] if plain.get("disableWebhooks") else []
    return await helm.run(
        *args, *flags, chart=chart, values=values, cluster=False, cancelled=call.cancelled, secrets=secrets
    )


async def _lint(helm: Helm, chart: Chart, values: Mapping[str, Any], secrets: tuple[str, ...]) -> None:
    """Lint a chart, fetching it first where it is in a repository; helm's complaints are its stdout."""
    with helm.folder() as folder:
        where = chart.reference
        if not Path(where).exists():
            await helm.run("pull", "--destination", str(folder), chart=chart, cluster=False, secrets=secrets)
            where = str(next(folder.iterdir()))
        await helm.run("lint", "--quiet", where, values=values, cluster=False, secrets=secrets)


def rendering_flags(plain: Mapping[str, Any]) -> list[str]:
    """The flags that template, install and upgrade have in common and that decide what is rendered."""
    flags = ["--devel"] if plain.get("devel") and not plain.get("version") else []
    flags += ["--dependency-update"] if plain.get("dependencyUpdate") else []
    flags += ["--render-subchart-notes"] if plain.get("renderSubchartNotes") else []
    flags += ["--post-renderer", plain["postrender"]] if plain.get("postrender") else []
    if plain.get("verify"):
        flags += ["--verify", *(["--keyring", plain["keyring"]] if plain.get("keyring") else [])]
    return flags


def objects(manifest: str) -> Iterator[dict[str, Any]]:
    """The objects of a rendered manifest, Lists taken apart, empty documents left out."""
    for document in fast_yaml.load_all(manifest):
        if isinstance(document, dict) and document.get("kind"):
            if str(document["kind"]).endswith("List") and isinstance(document.get("items"), list):
                yield from (item for item in document["items"] if isinstance(item, dict))
            else:
                yield document


def resource_names(manifest: str) -> dict[str, list[str]]:
    """Names by ``Kind.group/apiVersion``, with the namespace before them where the manifest gives one."""
    found: dict[str, set[str]] = {}
    for item in objects(manifest):
        version, metadata = str(item.get("apiVersion", "")), item.get("metadata") or {}
        group = version.rpartition("/")[0]
        key = f"{item['kind']}{'.' + group if group else ''}/{version}"
        name = str(metadata.get("name", ""))
        found.setdefault(key, set()).add(
            f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name
        )
    return {key: sorted(names) for key, names in sorted(found.items())}
