from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bed import cgroups

_BOOT = "cut -d' ' -f22 /proc/1/stat"  # start time of init in clock ticks: changes at every boot
BOOT_SECONDS = 300  # 2 to 4 s on an idle machine with two cores


@dataclass(frozen=True)
class Host:
    """A machine that boots systemd; ``bed`` is its bed's folder."""

    name: str
    address: str
    bed: Path
    port: int = 22

    @property
    def folder(self) -> Path:
        """The host's files that persist between boots, and its console log."""
        return self.bed / "hosts" / self.name

    @property
    def machine(self) -> str:
        """A name unique among all beds' hosts, short enough for an interface."""
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]

    @property
    def group(self) -> str:
        return f"{group(self.bed)}/{self.name}"

    @property
    def console(self) -> str:
        return (self.folder / "console").read_text(errors="replace")

    def ssh(self, *options: str) -> list[str]:
        return ["ssh", "-F", str(self.bed / "ssh_config"), *options, self.name]

    def run(
        self, command: str, *, check: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root; with ``check``, a failure raises AssertionError with all output."""
        done = subprocess.run(
            [*self.ssh(), "--", command],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {command}: rc {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def out(self, command: str) -> str:
        return self.run(command).stdout.rstrip("\n")

    def write(self, path: str, text: str) -> None:
        command = f"mkdir -p $(dirname '{path}') && cat > '{path}'"
        subprocess.run([*self.ssh(), "--", command], input=text, text=True, check=True, timeout=60)

    def play(self, product: str, count: int) -> None:
        """Set the host's GPUs by the name that nvidia-smi prints; none for a count of 0."""
        self.write("/etc/fake-gpu.json", json.dumps({"product": product, "count": count}) + "\n")

    @property
    def running(self) -> bool:
        return bool(cgroups.members(self.group))

    def start(self, lower: str, bridge: str) -> None:
        """Boot the host; returns at once."""
        for name in ("up", "work", "root"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        groups = [str(path) for path in cgroups.make(self.group)]
        script = str(Path(__file__).with_name("host.sh"))
        loop = ["sh", script, lower, str(self.folder), self.machine, self.name, bridge, *groups]
        with (self.folder / "console").open("ab") as console:
            subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", *loop],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def wait(self, since: str = "") -> None:
        """Return when ssh answers and every unit has started; ``since``: id of an earlier boot to ignore."""
        deadline = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < deadline:
            if self._answers():
                done = self.run(f"systemctl is-system-running --wait; {_BOOT}", check=False)
                words = done.stdout.split()
                if words and words[0] in ("running", "degraded") and words[-1] != since:
                    return
            elif not self.running:
                break
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} did not boot within {BOOT_SECONDS} s:\n{self.console[-3000:]}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def reboot(self) -> None:
        before = self.out(_BOOT)
        self.run("systemctl reboot", check=False)
        self.wait(since=before)


def group(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode()).hexdigest()[:16]


def started(pid: int) -> int:
    """Start time of a process in clock ticks since boot (proc_pid_stat(5), field 22); 0: it has ended."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if after[0] == "Z" else int(after[19])
