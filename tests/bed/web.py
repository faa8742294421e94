"""The bed's web server, on its bridge: the Debian mirror behind a cache, and files that tests publish.

    python -m tests.bed.web FOLDER ADDRESS [ARCHIVE ...]

``/debian/N/`` is the Nth archive of this machine's own apt; everything else is FOLDER/web. Hosts reach
only this server. When the bed's owner process has ended, the server takes the bed down; it ends with the
bed's control group.
"""

from __future__ import annotations

import filecmp
import http.server
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.bed import cgroups, places
from tests.bed.base import sources
from tests.bed.host import group

PORT = 80
START_SECONDS = 30
_one = defaultdict[Path, threading.Lock](threading.Lock)


def ensure(folder: Path, address: str) -> None:
    """Return when the server of the bed in ``folder`` answers; starts it if none runs."""
    at = f"{group(folder)}/web"
    if not cgroups.members(at):
        _start(folder, address, at)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(address):
        if time.monotonic() > deadline or not cgroups.members(at):
            raise RuntimeError(
                f"the bed's web server does not answer: {(folder / 'web.log').read_text()[-2000:]}"
            )
        time.sleep(0.05)


def _start(folder: Path, address: str, at: str) -> None:
    (folder / "web").mkdir(exist_ok=True)
    archives = [source.url for source in sources()]
    server = [sys.executable, "-m", "tests.bed.web", str(folder), address, *archives]
    with (folder / "web.log").open("ab") as log:
        subprocess.Popen(
            [*cgroups.entering(cgroups.make(at)), *server],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
    deadline = time.monotonic() + START_SECONDS
    while not cgroups.members(at) and time.monotonic() < deadline:
        time.sleep(0.01)


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, PORT), timeout=2).close()
    except OSError:
        return False
    return True


class Handler(http.server.SimpleHTTPRequestHandler):
    """Answers GET and HEAD; immutable files of an archive are downloaded once per machine."""

    protocol_version = "HTTP/1.1"
    archives: tuple[str, ...] = ()
    cache = Path()

    def translate_path(self, path: str) -> str:
        """The file to send; a file of an archive is downloaded first."""
        words = path.split("?")[0].lstrip("/").split("/")
        if words[0] != "debian" or ".." in words or not words[1].isdigit():
            return super().translate_path(path)
        archive = self.archives[int(words[1])] if int(words[1]) < len(self.archives) else ""
        name = "/".join(words[2:])
        # Per archive, so that a changed mirror setting does not mix two of them.
        file = self.cache / archive.replace("/", "_") / name
        with _one[file]:
            fixed = name.startswith("pool/") or "/by-hash/" in name
            if not (fixed and file.is_file()):
                _fetch(f"{archive}/{name}", file)
        return str(file)

    def list_directory(self, path: Any) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        print(self.client_address[0], format % args, flush=True)


def _fetch(url: str, file: Path) -> None:
    """Update a file; an older copy stays if the archive does not answer."""
    request = urllib.request.Request(url)
    if file.is_file():
        request.add_header("If-Modified-Since", Handler.date_time_string(_DATES, file.stat().st_mtime))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as out:
                shutil.copyfileobj(answer, out)
            stamp = answer.headers["Last-Modified"]
            if stamp:
                seconds = time.mktime(time.strptime(stamp, "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
                os.utime(out.name, (seconds, seconds))
            Path(out.name).chmod(0o644)
            if file.is_file() and filecmp.cmp(out.name, file, shallow=False):
                Path(out.name).unlink()  # its date stays, so that apt is told "not modified"
            else:
                Path(out.name).replace(file)
    except (urllib.error.URLError, TimeoutError) as error:
        if getattr(error, "code", None) != 304:
            print(f"{url}: {error}", flush=True)


_DATES: Any = None  # date_time_string does not use its handler's state


def _watch(name: str) -> None:
    """Take the bed down once its owner has ended; in another process, since this one ends with the bed."""
    from tests.bed.bed import Bed  # which starts this server

    while not Bed(name).abandoned:
        time.sleep(2)
    command = [sys.executable, "-c", "from tests.bed import sweep; sweep()"]
    subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)


def main() -> None:
    folder, address, *Handler.archives = Path(sys.argv[1]), *sys.argv[2:]  # type: ignore[assignment]
    Handler.cache = places.shared() / "mirror"

    class Served(Handler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder / "web"))

    threading.Thread(target=_watch, args=(folder.name,), daemon=True).start()
    server = http.server.ThreadingHTTPServer((address, PORT), Served)
    server.serve_forever()


if __name__ == "__main__":
    main()
