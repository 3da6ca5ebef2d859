"""Helpers for tests with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent

started: list[subprocess.Popen[str]] = []


def start_command(
    *arguments: str, module: str = "benchmarks.run", **environment: str
) -> subprocess.Popen[str]:
    """Start `python -m MODULE ...` in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    return process


def end_started() -> None:
    """End the commands that a failed test has left running."""
    while started:
        process = started.pop()
        if process.poll() is None:
            for pid in [*descendants(process.pid), process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until a condition is true, while a process runs."""
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, f"ended too early: {process.communicate()}"
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.005)


def descendants(pid: int) -> list[int]:
    """Processes below a process, also those that it has not started itself."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def assert_ended(pids: Iterable[int], seconds: float = 5.0) -> None:
    """All processes end within some seconds."""
    pids, deadline = list(pids), time.monotonic() + seconds
    while running := [pid for pid in pids if is_running(pid)]:
        assert time.monotonic() < deadline, f"still running: {running}"
        time.sleep(0.05)
