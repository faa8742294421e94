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

_QUOTE = "correct it there; a value that begins with one of * & ! % @ ` { [ needs quotes"
_ENTRY = "give it 'auth' with auth_url, username, password, project_name and user_domain_name"


def trouble(cloud: str | None) -> InputError | None:
    """The error in the files that openstacksdk searches, if any; called once openstacksdk has failed.

    As in openstacksdk, the first readable file counts; an unreadable file before it is an error. Without a
    ``cloud``, unreadable files are not an error if OS_AUTH_URL is set.
    """
    from openstack.config import loader

    by_variables = not cloud and "OS_AUTH_URL" in os.environ
    for override, files in (
        ("OS_CLIENT_CONFIG_FILE", loader.CONFIG_FILES),
        ("OS_CLIENT_SECURE_FILE", loader.SECURE_FILES),
    ):
        for file in filter(os.path.exists, filter(None, (os.environ.get(override), *files))):
            try:
                found = _read(file)
            except InputError as error:
                if not by_variables:
                    return error
                continue
            wrong = _shape(file, found, cloud)
            if wrong:
                return wrong
            break
    return None


def address(auth_url: object, source: str) -> InputError | None:
    """The error if ``auth_url`` is not a valid URL; ``source`` is where it is set."""
    text = str(auth_url)
    try:
        split = urlsplit(text)
        if split.scheme in ("http", "https") and split.hostname:
            return None
    except ValueError:  # unbalanced brackets
        pass
    fact = f"{text!r} is not the URL of an identity service"
    if "://" not in text:
        fact += ": it has no https:// before the host"
    return InputError(source, fact, "give the full URL, as in https://keystone.example.org:5000/v3")


def source(file: str | None, cloud: str | None) -> str:
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
        raise InputError(_at(file, error), "is not YAML: an undefined alias or tag", _QUOTE) from None
    except yaml.MarkedYAMLError as error:
        said = "an undefined tag" if "tag" in str(error.problem) else error.problem
        raise InputError(_at(file, error), f"is not YAML: {said}", _QUOTE) from None
    except (ValueError, yaml.YAMLError):
        raise InputError(
            file, "is not UTF-8 text, or has characters that YAML forbids", "save it as UTF-8"
        ) from None


def _at(file: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"{file}:{mark.line + 1}" if mark else file


def _shape(file: str, found: Any, cloud: str | None) -> InputError | None:
    """The error for the first level down to ``auth`` that is not a mapping; an empty file is valid."""
    if found is None:
        return None
    if not isinstance(found, Mapping):
        return InputError(file, f"{_is(found)}, not a mapping", "begin it with 'clouds:'")
    clouds = found.get("clouds", {})
    if not isinstance(clouds, Mapping):
        fact = f"clouds {_is(clouds)}, not a mapping of names to clouds"
        return InputError(file, fact, "write each cloud below 'clouds:', indented, as 'NAME:'")
    wanted = cloud or (next(iter(clouds)) if len(clouds) == 1 else None)
    entry = clouds.get(wanted, {})
    auth = entry.get("auth", {}) if isinstance(entry, Mapping) else {}
    for path, level in ((f"clouds.{wanted}", entry), (f"clouds.{wanted}.auth", auth)):
        if not isinstance(level, Mapping):
            return InputError(file, f"{path} {_is(level)}, not a mapping", _ENTRY)
    return None


def _is(value: Any) -> str:
    if value is None:
        return "is empty"
    return "is a list" if isinstance(value, list) else "is a single value"
