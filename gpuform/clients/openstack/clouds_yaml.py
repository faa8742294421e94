"""Errors in a clouds.yaml that openstacksdk does not report.

It skips a file that it cannot read or that is not YAML, and then reports "Cloud cern was not found"; on an
entry that is not a mapping it fails (openstack/config/loader.py, ``_load_yaml_json_file``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from gpuform.checkout.errors import InputError

_QUOTE_VALUE = "correct it there; a value that begins with one of * & ! % @ ` { [ needs quotes"
_COMPLETE_AUTH = "give it 'auth' with auth_url, username, password, project_name and user_domain_name"


def find_error(cloud: str | None) -> InputError | None:
    """The error in the files that openstacksdk searches, if any; called once openstacksdk has failed.

    As in openstacksdk, the first readable file counts; an unreadable file before it is an error. Without a
    ``cloud``, unreadable files are not an error if OS_AUTH_URL is set.
    """
    from openstack.config import loader

    uses_variables = not cloud and "OS_AUTH_URL" in os.environ
    for override, files in (
        ("OS_CLIENT_CONFIG_FILE", loader.CONFIG_FILES),
        ("OS_CLIENT_SECURE_FILE", loader.SECURE_FILES),
    ):
        for file in filter(os.path.exists, filter(None, (os.environ.get(override), *files))):
            try:
                content = _read(file)
            except InputError as error:
                if not uses_variables:
                    return error
                continue
            if problem := _structure_error(file, content, cloud):
                return problem
            break
    return None


def auth_url_error(auth_url: object, source: str) -> InputError | None:
    """The error if ``auth_url`` is not a valid URL; ``source`` is where it is set."""
    text = str(auth_url)
    try:
        url = urlsplit(text)
        if url.scheme in ("http", "https") and url.hostname:
            return None
    except ValueError:  # unbalanced brackets
        pass
    fact = f"{text!r} is not the URL of an identity service"
    if "://" not in text:
        fact += ": it has no https:// before the host"
    return InputError(source, fact, "give the full URL, as in https://keystone.example.org:5000/v3")


def auth_url_source(file: str | None, cloud: str | None) -> str:
    """Where auth_url is set: in an entry of a clouds.yaml, else in the OS_ variables."""
    return f"{file or 'clouds.yaml'}: clouds.{cloud}.auth.auth_url" if cloud else "OS_AUTH_URL"


def _read(file: str) -> Any:
    """A file's content. Raises InputError with the line number, but no text: the file holds passwords."""
    try:
        text = Path(file).read_text()
        return json.loads(text) if file.endswith("json") else yaml.safe_load(text)
    except OSError as error:
        fact = f"cannot be read: {error.strerror or error}"
        raise InputError(file, fact, "make it readable, or remove it") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{file}:{error.lineno}", f"is not JSON: {error.msg}", "correct it there") from None
    except (yaml.composer.ComposerError, yaml.constructor.ConstructorError) as error:
        # These errors quote the text, which may be a password: YAML takes *secret for an alias.
        raise InputError(
            _location(file, error), "is not YAML: an undefined alias or tag", _QUOTE_VALUE
        ) from None
    except yaml.MarkedYAMLError as error:
        problem = "an undefined tag" if "tag" in str(error.problem) else error.problem
        raise InputError(_location(file, error), f"is not YAML: {problem}", _QUOTE_VALUE) from None
    except (ValueError, yaml.YAMLError):
        raise InputError(
            file, "is not UTF-8 text, or has characters that YAML forbids", "save it as UTF-8"
        ) from None


def _location(file: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"{file}:{mark.line + 1}" if mark else file


def _structure_error(file: str, content: Any, cloud: str | None) -> InputError | None:
    """The error for the first level down to ``auth`` that is not a mapping; an empty file is valid."""
    if content is None:
        return None
    if not isinstance(content, Mapping):
        return InputError(file, f"{_describe_type(content)}, not a mapping", "begin it with 'clouds:'")
    clouds = content.get("clouds", {})
    if not isinstance(clouds, Mapping):
        fact = f"clouds {_describe_type(clouds)}, not a mapping of names to clouds"
        return InputError(file, fact, "write each cloud below 'clouds:', indented, as 'NAME:'")
    cloud_name = cloud or (next(iter(clouds)) if len(clouds) == 1 else None)
    entry = clouds.get(cloud_name, {})
    auth = entry.get("auth", {}) if isinstance(entry, Mapping) else {}
    for path, level in ((f"clouds.{cloud_name}", entry), (f"clouds.{cloud_name}.auth", auth)):
        if not isinstance(level, Mapping):
            return InputError(file, f"{path} {_describe_type(level)}, not a mapping", _COMPLETE_AUTH)
    return None


def _describe_type(value: Any) -> str:
    if value is None:
        return "is empty"
    return "is a list" if isinstance(value, list) else "is a single value"
