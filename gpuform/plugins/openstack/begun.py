"""What this machine has begun to make at Magnum, so that an interrupted run is gone on with and not repeated.

Magnum has nothing to carry a mark but a label, which would be part of the request: the one that the source
types by hand and ours would differ, and two stacks of one name would still take each other's cluster. A name
alone may be somebody else's. So the proof lies here: before it asks Magnum for a thing, the stand-in looks
whether there is one of that name, refuses to go on if so, and writes down that there was none; after the
answer, the uuid. A later create of the same resource takes over exactly that uuid; where the answer was lost,
the one thing of that name that the same user made within minutes of the note. Anything else of that name is
not ours, and nothing is made beside it.

The note goes as soon as the engine shows by its id that its state has the thing: of one that is replaced, the
state has the old one until the new one is made. It holds no secret. A run on
another machine does not have it: there `gpuform recover` goes by the engine's own pending operation.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpuform.openstack.api import moment
from gpuform.plugins.openstack.api import Live

_WITHIN = timedelta(minutes=5)  # the request's own timeout, and clocks that differ
_FOLDER = "openstack-begun"


@dataclass(frozen=True)
class Note:
    """One thing that was asked for: its name, when (this machine's clock), and its uuid once known.

    ``asked`` has a hash of each input, for an input may be a proxy's address with a password.
    """

    urn: str
    name: str
    at: str
    uuid: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)

    @property
    def age(self) -> timedelta:
        """How long ago it was begun."""
        return datetime.now(UTC) - datetime.fromisoformat(self.at)

    def otherwise(self, inputs: Mapping[str, Any]) -> list[str]:
        """The inputs that were others when it was asked for."""
        now = _hashes(inputs)
        return [key for key in sorted({*self.asked, *now}) if self.asked.get(key) != now.get(key)]

    def made(self, live: Live, user: str) -> bool:
        """Whether ``live`` is what was asked for: by its uuid, or by name, maker and moment."""
        if self.uuid:
            return live.get("uuid") == self.uuid and live.get("name") == self.name
        made = moment(live.get("created_at"))
        near = made is not None and abs(made - datetime.fromisoformat(self.at)) <= _WITHIN
        return live.get("name") == self.name and near and live.get("user_id", user) == user


def note(urn: str) -> Note | None:
    """What was begun for a resource; a note that cannot be read is none."""
    try:
        return Note(**json.loads(_file(urn).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def begin(urn: str, inputs: Mapping[str, Any]) -> Note:
    """Write down that there was none of this name, and that one is asked for now."""
    now = datetime.now(UTC).isoformat()
    return _write(Note(urn, str(inputs["name"]), now, asked=_hashes(inputs)))


def answered(noted: Note, uuid: str) -> Note:
    """Write down the uuid of the answer."""
    return _write(replace(noted, uuid=uuid))


def had(urn: str, id: str) -> None:
    """Take the note away if it is of what the engine has in its state: its work is done."""
    noted = note(urn)
    if noted is not None and noted.uuid and noted.uuid == id.rpartition("/")[2]:
        forget(urn)


def forget(urn: str) -> None:
    """Take the note away."""
    _file(urn).unlink(missing_ok=True)


def _write(noted: Note) -> Note:
    file = _file(noted.urn)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = file.with_suffix(f".{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as out:
        json.dump(asdict(noted), out)
        out.flush()
        os.fsync(out.fileno())  # the machine may be what is interrupted
    fresh.replace(file)
    return noted


def _hashes(inputs: Mapping[str, Any]) -> dict[str, str]:
    texts = {key: json.dumps(value, sort_keys=True) for key, value in inputs.items()}
    return {key: hashlib.sha256(text.encode()).hexdigest()[:16] for key, text in texts.items()}


def _file(urn: str, environ: Mapping[str, str] = os.environ) -> Path:
    """One file per resource of one backend: another backend may have a stack of the same name."""
    state = environ.get("GPUFORM_STATE") or environ.get("PULUMI_HOME") or str(Path.home() / ".pulumi")
    key = f"{environ.get('PULUMI_BACKEND_URL', '')}\n{urn}"
    return Path(state) / _FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
