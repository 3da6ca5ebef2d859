"""Lease of a run directory: one process at a time executes a run, also on a network file system.

A lease is a file `.lease.N` that is created exclusively. Its holder renews it every few seconds.
A lease is stale if it was not renewed for long, or if its process on this machine has ended. Then
the next process creates number N + 1, which only one can, and removes the stale file.
"""

import json
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = ".lease."
RENEWAL_SECONDS = 10.0
STALE_SECONDS = 10 * RENEWAL_SECONDS
FILE_BYTES = 1024  # A renewal overwrites the whole content in one call.


class RunLeasedError(Exception):
    """Another process executes this run."""


class LeaseInfo(NamedTuple):
    """What a lease file says. An unreadable file has no content."""

    path: Path
    content: Mapping[str, Any]  # host, machine, process, started, progress
    seconds_since_renewal: float

    @property
    def is_stale(self) -> bool:
        if self.content.get("machine") == machine() and not _is_running(self.content["process"]):
            return True
        return self.seconds_since_renewal > STALE_SECONDS

    @property
    def holder(self) -> str:
        """Host, process and start, such as `node3 (process 81, since 2024-05-01 10:00:00)`."""
        started = time.localtime(self.content.get("started", 0))
        since = time.strftime("%Y-%m-%d %H:%M:%S", started)
        host, process = self.content.get("host", "?"), self.content.get("process", "?")
        return f"{host} (process {process}, since {since})"


@dataclass
class Lease:
    """A lease that this process holds."""

    path: Path
    progress: dict[str, Any] = field(default_factory=dict)  # shown by `fln status`

    def __post_init__(self) -> None:
        holder = {"host": platform.node(), "machine": machine(), "process": os.getpid()}
        self.content = holder | {"started": time.time()}

    def renew(self) -> None:
        """Renew the lease. Raises RunLeasedError if another process has taken it."""
        data = json.dumps(self.content | {"progress": self.progress}).encode().ljust(FILE_BYTES)
        try:
            with open(self.path, "rb+", buffering=0) as file:
                file.write(data)
        except FileNotFoundError:
            raise RunLeasedError(f"{self.path.parent} was taken over by another process") from None

    def renew_until(self, end: threading.Event) -> None:
        while not end.wait(RENEWAL_SECONDS):
            with suppress(OSError, RunLeasedError):  # The round loop renews it, too, and stops.
                self.renew()


@contextmanager
def hold_lease(run_dir: Path) -> Iterator[Lease]:
    """Hold the lease of a run directory. Raises RunLeasedError if another process holds it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    lease, end = _acquire(run_dir), threading.Event()
    thread = threading.Thread(target=lease.renew_until, args=(end,), daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        end.set()
        thread.join()
        lease.path.unlink(missing_ok=True)


def read_lease(run_dir: Path, now: float | None = None) -> LeaseInfo | None:
    """The latest lease of a run directory. `now` is the time of the file system."""
    return max(_read_leases(run_dir, now), key=lambda lease: _number(lease.path), default=None)


def file_system_time(directory: Path) -> float:
    """Time of the machine that stores a directory, with which its files are marked."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".time-") as file:
            return os.stat(file.name).st_mtime
    except OSError:  # a directory without write permission
        return time.time()


@cache
def machine() -> str:
    """Host, boot and process namespace: process ids are comparable where these are equal."""
    parts = [platform.node()]
    with suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
        parts += [os.readlink("/proc/self/ns/pid")]
    return " ".join(parts)


def _acquire(run_dir: Path) -> Lease:
    found = _read_leases(run_dir)
    _require_stale(found)
    lease = Lease(run_dir / f"{PREFIX}{max((_number(old.path) for old in found), default=0) + 1}")
    try:
        os.close(os.open(lease.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        raise RunLeasedError(f"{run_dir} was taken by another process") from None
    try:
        lease.renew()
        # Another process may have created another number from an older list of files.
        _require_stale([other for other in _read_leases(run_dir) if other.path != lease.path])
    except BaseException:
        lease.path.unlink(missing_ok=True)
        raise
    for old in found:
        old.path.unlink(missing_ok=True)
    return lease


def _require_stale(leases: list[LeaseInfo]) -> None:
    for lease in leases:
        if not lease.is_stale:
            raise RunLeasedError(f"{lease.path.parent} is running on {lease.holder}")


def _read_leases(run_dir: Path, now: float | None = None) -> list[LeaseInfo]:
    found = []
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(run_dir):
            if entry.name.startswith(PREFIX) and entry.name.removeprefix(PREFIX).isdecimal():
                now = file_system_time(run_dir) if now is None else now
                with suppress(FileNotFoundError):
                    found.append(_read(Path(entry.path), now))
    return found


def _read(path: Path, now: float) -> LeaseInfo:
    seconds = now - path.stat().st_mtime
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content["process"], int) or not isinstance(content["started"], float):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        content = {}
    return LeaseInfo(path, content, seconds)


def _number(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def _is_running(process: int) -> bool:
    with suppress(OSError):  # A zombie has ended, but still has its number.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
