"""Selects kubeconfig, context and namespace as the official provider does.

Order: the provider's ``kubeconfig`` (contents or a path), ``KUBECONFIG`` (one or more paths),
``~/.kube/config``. Nothing here talks to a cluster; a missing or invalid kubeconfig is kept as the reason why
the cluster cannot be reached, because a preview works without one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.errors import InputError
from gpuform.kubernetes import fields

_FILES = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile")}


@dataclass(frozen=True)
class Access:
    """One cluster and one user, chosen from a kubeconfig.

    ``problem`` says why none could be chosen; every other field except ``namespace`` is then empty.
    """

    server: str = ""
    namespace: str = "default"
    context: str = ""
    cluster: Mapping[str, Any] = field(default_factory=dict, repr=False)
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)
    problem: str = ""
    input_error: InputError | None = field(default=None, repr=False)
    """Set if the problem is a field that cannot be honoured."""

    @property
    def document(self) -> dict[str, Any]:
        """A kubeconfig with only this cluster and this user, for another tool; it contains credentials."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "this", "cluster": self.cluster}],
            "users": [{"name": "this", "user": self.user}],
            "contexts": [{"name": "this", "context": {"cluster": "this", "user": "this"}}],
            "current-context": "this",
        }


def resolve(config: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Access:
    """The cluster selected by the provider's configuration (plain values)."""
    input_error = None
    try:
        return _select_access(_load(config.get("kubeconfig"), environ), config)
    except yaml.YAMLError:  # its text quotes the line with the error, which may be a credential
        text = "it is not valid YAML"
    except InputError as problem:
        text, input_error = str(problem), problem
    except (OSError, ValueError) as problem:
        text = str(problem)
    except (AttributeError, LookupError, TypeError, RecursionError):
        text = "it is not a kubeconfig: clusters, users and contexts are lists of mappings with a name"
    return Access(problem=text, input_error=input_error, namespace=str(config.get("namespace") or "default"))


def load_access(kubeconfig: Path | str, context: str | None = None) -> Access:
    """The cluster selected by a file; InputError for a field that cannot be honoured, else OSError."""
    access = resolve({"kubeconfig": str(kubeconfig), "context": context}, {})
    if access.input_error:
        raise access.input_error
    if access.problem:
        raise OSError(access.problem)
    return access


def _load(value: Any, environ: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if value:
        path = _as_path(str(value))
        return _read(path) if path else _check_mapping(yaml.safe_load(str(value)), "kubeconfig")
    paths = [Path(item).expanduser() for item in environ.get("KUBECONFIG", "").split(os.pathsep) if item]
    documents = [_read(path) for path in paths if path.is_file()]
    default = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not documents and not paths and default.is_file():
        documents = [_read(default)]
    if not documents:
        searched = ", ".join(map(str, paths)) or str(default)
        raise ValueError(
            f"no kubeconfig found (searched {searched}); set KUBECONFIG or the provider's kubeconfig"
        )
    return _merge(documents)


def _as_path(text: str) -> Path | None:
    """The file that ``text`` names; None for the contents of a kubeconfig (several lines, or JSON)."""
    if "\n" in text.strip() or text.lstrip().startswith("{") or len(text) > 4096:
        return None
    path = Path(text).expanduser()
    if path.is_file() or os.sep in text:
        return path
    return None


def _read(path: Path) -> dict[str, Any]:
    document = _check_mapping(yaml.safe_load(path.read_text()), str(path))
    for section, keys in _FILES.items():
        for entry in document.get(section) or ():
            settings = entry.get(section[:-1]) or {}
            for key in keys:
                if settings.get(key):
                    settings[key] = str(path.parent.resolve() / settings[key])
            login = settings.get("exec") or {}
            if os.sep in str(login.get("command")):  # without one, it is looked up on PATH
                login["command"] = str(path.parent.resolve() / login["command"])
    return document


def _check_mapping(document: Any, source: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError(f"{source}: it is not a kubeconfig")
    return document


def _merge(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Merges as kubectl does: the first file that defines a name wins."""
    merged: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    for section in ("clusters", "users", "contexts"):
        names: dict[str, Any] = {}
        for document in documents:
            for entry in document.get(section) or ():
                names.setdefault(entry["name"], entry)
        merged[section] = list(names.values())
    merged["current-context"] = next(
        (d["current-context"] for d in documents if d.get("current-context")), ""
    )
    return merged


def _select_access(document: dict[str, Any], config: Mapping[str, Any]) -> Access:
    name = str(config.get("context") or document.get("current-context") or "")
    contexts = {entry["name"]: entry.get("context") or {} for entry in document.get("contexts") or ()}
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise ValueError(f"context {name!r} is not in the kubeconfig (it has: {known})")
    context = contexts[name]
    clusters = {entry["name"]: entry.get("cluster") or {} for entry in document.get("clusters") or ()}
    cluster_name = str(config.get("cluster") or context.get("cluster"))
    cluster = clusters.get(cluster_name)
    if not cluster or not cluster.get("server"):
        raise ValueError(f"context {name!r} has no cluster with a server")
    users = {entry["name"]: entry.get("user") or {} for entry in document.get("users") or ()}
    user_name = str(context.get("user") or "")
    if user_name and user_name not in users:
        raise ValueError(f"context {name!r} has user {user_name!r}, which is not in the kubeconfig")
    user = users.get(user_name, {})
    fields.check_fields((name, context), (cluster_name, cluster), (user_name, user))
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=str(config.get("namespace") or context.get("namespace") or "default"),
        context=name,
        cluster=cluster,
        user=user,
    )
