"""Fields of a kubeconfig: those that our clients honour, and the error for every other one.

Source: client-go v0.36, ``tools/clientcmd/api/v1/types.go`` (fields) and ``validation.go`` (combinations).
A field that is ignored may be the one that takes rights away, so an unknown field is an error, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.checkout.errors import InputError

_TEXT, _FLAG, _LIST, _TABLE = str, bool, list, dict
FIELDS: Mapping[str, Mapping[str, type]] = {
    "cluster": {
        **dict.fromkeys(("server", "tls-server-name", "proxy-url"), _TEXT),
        **dict.fromkeys(("certificate-authority", "certificate-authority-data"), _TEXT),
        **dict.fromkeys(("insecure-skip-tls-verify", "disable-compression"), _FLAG),
        "extensions": _LIST,
    },
    "user": {
        **dict.fromkeys(("client-certificate", "client-certificate-data", "client-key"), _TEXT),
        **dict.fromkeys(("client-key-data", "token", "tokenFile", "username", "password"), _TEXT),
        **dict.fromkeys(("as", "as-uid"), _TEXT),
        **dict.fromkeys(("as-groups", "extensions"), _LIST),
        **dict.fromkeys(("as-user-extra", "auth-provider", "exec"), _TABLE),
    },
    "context": {**dict.fromkeys(("cluster", "user", "namespace"), _TEXT), "extensions": _LIST},
    "exec": {
        **dict.fromkeys(("command", "apiVersion", "installHint", "interactiveMode"), _TEXT),
        **dict.fromkeys(("args", "env"), _LIST),
        "provideClusterInfo": _FLAG,
    },
}
_NAMES = {_TEXT: "text", _FLAG: "true or false", _LIST: "a list", _TABLE: "a mapping"}
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_ALTERNATIVES = (
    ("cluster", "certificate-authority", "certificate-authority-data"),
    ("user", "client-certificate", "client-certificate-data"),
    ("user", "client-key", "client-key-data"),
    ("user", "token", "username"),
    ("user", "exec", "auth-provider"),
)


def check_fields(context: tuple[str, Any], cluster: tuple[str, Any], user: tuple[str, Any]) -> None:
    """Raise InputError for a field of these three entries, each with its name, that cannot be honoured."""
    for section, (name, entry) in (("context", context), ("cluster", cluster), ("user", user)):
        path = f"kubeconfig.{section}s[{name}]"
        _check_known(path, section, entry)
        for kind, field, alternative in _ALTERNATIVES:
            if kind == section and entry.get(field) and entry.get(alternative):
                raise InputError(f"{path}.{alternative}", f"is given beside {field}", "leave one of them out")
    _check_cluster(f"kubeconfig.clusters[{cluster[0]}]", cluster[1])
    _check_user(f"kubeconfig.users[{user[0]}]", user[1])


def _check_known(path: str, section: str, entry: Any) -> None:
    if not isinstance(entry, Mapping):
        raise InputError(path, "is not a mapping", "write fields and values")
    fields = FIELDS[section]
    for key, value in entry.items():
        if key not in fields:
            fact = f"unknown field of a {section}, and it may change what a request is allowed"
            raise InputError(f"{path}.{key}", fact, f"leave it out; known: {', '.join(fields)}")
        if value is not None and not isinstance(value, fields[key]):
            raise InputError(f"{path}.{key}", f"is not {_NAMES[fields[key]]}", "correct its value")


def _check_cluster(path: str, cluster: Mapping[str, Any]) -> None:
    scheme, separator, _ = str(cluster.get("proxy-url") or "").partition("://")
    if cluster.get("proxy-url") and (not separator or scheme not in ("http", "https")):
        remedy = "use a proxy with http:// or https://"
        raise InputError(f"{path}.proxy-url", "only HTTP proxies are supported", remedy)
    if cluster.get("proxy-url") and cluster.get("tls-server-name"):
        fact = "the server's name cannot be checked behind a proxy-url"
        remedy = "leave one of them out, or set HTTPS_PROXY"
        raise InputError(f"{path}.tls-server-name", fact, f"{remedy}")
    if cluster.get("insecure-skip-tls-verify"):
        for key in ("certificate-authority", "certificate-authority-data"):
            if cluster.get(key):
                fact = "is not checked with insecure-skip-tls-verify"
                raise InputError(f"{path}.{key}", fact, "leave out insecure-skip-tls-verify")


def _check_user(path: str, user: Mapping[str, Any]) -> None:
    if user.get("auth-provider"):
        remedy = "use an exec plugin: auth providers were removed in Kubernetes 1.26"
        raise InputError(f"{path}.auth-provider", "is not supported", remedy)
    for key in ("as-uid", "as-groups", "as-user-extra"):
        if user.get(key) and not user.get("as"):
            fact = "is given without the user to impersonate"
            raise InputError(f"{path}.{key}", fact, "add as: USER")
    _check_texts(f"{path}.as-groups", user.get("as-groups") or ())
    for key, values in (user.get("as-user-extra") or {}).items():
        _check_texts(f"{path}.as-user-extra.{key}", values)
    pairs = [
        any(user.get(f"{field}{data}") for data in ("", "-data"))
        for field in ("client-certificate", "client-key")
    ]
    if pairs[0] != pairs[1]:
        missing = "client-key" if pairs[0] else "client-certificate"
        raise InputError(path, f"{missing} is missing", "give both the certificate and its key")
    if user.get("exec"):
        _check_exec(f"{path}.exec", user["exec"])


def _check_exec(path: str, login: Mapping[str, Any]) -> None:
    _check_known(path, "exec", login)
    if not login.get("command"):
        raise InputError(f"{path}.command", "is missing", "name the command that gets the credentials")
    version, mode = login.get("apiVersion"), login.get("interactiveMode")
    if version not in _EXEC_VERSIONS:
        fact = f"is {version or 'missing'}"
        raise InputError(f"{path}.apiVersion", fact, f"use {' or '.join(_EXEC_VERSIONS)}")
    if mode not in (None, "Never", "IfAvailable"):
        fact = f"is {mode}, and the command gets no terminal here"
        raise InputError(f"{path}.interactiveMode", fact, "use Never or IfAvailable, and log in before")
    _check_texts(f"{path}.args", login.get("args") or ())
    for item in login.get("env") or ():
        if not isinstance(item, Mapping) or {*item} - {"name", "value"} or not item.get("name"):
            raise InputError(f"{path}.env", "has an entry without a name and a value", "write name and value")
        _check_texts(f"{path}.env", [item["name"], item.get("value") or ""])


def _check_texts(path: str, values: Iterable[Any]) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise InputError(path, "is not a list of texts", "write numbers in quotes")
