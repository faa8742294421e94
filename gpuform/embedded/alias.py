"""A second path to a folder whose own path kwokctl cannot take.

kwokctl reads its variables up to the first blank, and takes ``#``, ``%`` and commas in some paths for
something else. Such a folder is told to it, and by it to the members, as a link without such characters.
The link is there from a start to the next stop; what runs is known by it even when it is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from gpuform.errors import InputError

# Not below TMPDIR or XDG_RUNTIME_DIR: a start and a stop with different ones would not know each other, and
# the latter goes with the login session, which the control plane outlives.
FOLDER = Path(f"/tmp/gpuform-{os.geteuid()}")  # noqa: S108 - ensure() looks at whose it is
_PLAIN = "/._-+@"


def path(home: Path) -> Path | None:
    """The link's path, the same for the same ``home`` every time; None where ``home`` can be told itself."""
    if all(letter.isalnum() or letter in _PLAIN for letter in str(home)):
        return None
    return FOLDER / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def ensure(home: Path) -> None:
    """Put the link in place if ``home`` needs one.

    Raises InputError where that cannot be done privately: others must not be able to turn the link.
    """
    link = path(home)
    if link is None:
        return
    for last in (False, False, True):
        try:
            _place(link, home)
            break
        except FileNotFoundError as error:  # another checkout's stop took the empty folder away
            if last:
                raise _refusal(home, str(error.strerror)) from None
        except OSError as error:
            raise _refusal(home, str(error.strerror)) from None


def _place(link: Path, home: Path) -> None:
    FOLDER.mkdir(mode=0o700, exist_ok=True)
    found = FOLDER.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise _refusal(home, "it is not a folder of this user alone")
    FOLDER.chmod(0o700)
    if not link.is_symlink() or link.readlink() != home:
        beside = link.with_name(f"{link.name}.{os.getpid()}")
        beside.unlink(missing_ok=True)
        beside.symlink_to(home, target_is_directory=True)
        beside.replace(link)


def remove(home: Path) -> None:
    """Take the link away, and the folder of links with the last one."""
    link = path(home)
    if link is not None:
        with contextlib.suppress(OSError):
            link.unlink(missing_ok=True)
            FOLDER.rmdir()


def _refusal(home: Path, why: str) -> InputError:
    return InputError(
        str(home),
        f"kwokctl cannot take this path, and no link to it can be made in {FOLDER}: {why}",
        "move the checkout, or set GPUFORM_STATE, to a path of letters, digits and . _ - only",
    )
