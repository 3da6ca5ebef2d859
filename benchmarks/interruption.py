"""Signals that end a command: SIGINT, SIGTERM and SIGHUP.

In the rounds of a run, the first signal is noted: the round ends, a checkpoint is written, and then
the command ends. SIGUSR2 does the same in a job of submitit, whose handler then requeues the job. A
second signal, or a signal at another time, ends the command at once. Worker processes ignore
signals. They end with their parent process, which tells them by a file to stop.

An exception that ends the command at once can be lost in a library: extension modules of Python
discard it while they import another module, which then stays incomplete and fails later. Therefore
every signal is noted, and an error that follows it is reported as the interruption.
"""

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from methods.core.errors import UserError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHECK_SECONDS = 0.5  # between two checks of a worker process
MAX_LAUNCHES = 4  # of runs whose worker processes die
NOTE = b"interrupted: the current round ends first; interrupt again to end at once\n"


class InterruptedCommand(KeyboardInterrupt):
    """A signal ends the command. `consequence` says what the same command does next."""

    def __init__(self, number: int, consequence: str = "rerun the same command to go on"):
        super().__init__(number)
        self.exit_code = 128 + number
        self.consequence = consequence


class _State:
    """State of this process."""

    requested = 0  # the signal that was noted, or 0
    deferrals = 0  # depth of `defer_signals`
    stop_file: Path | None = None  # tells the worker processes of a sweep to stop
    serves_sweep = False  # True in a worker process of a launcher
    requeue: Callable[[int, FrameType | None], Any] | None = None  # handler of submitit


def requested() -> int:
    """The signal that was noted, or 0."""
    return _State.requested


def raise_if_requested() -> None:
    """End the command if a signal was noted."""
    if _State.requested:
        _end(_State.requested)


@contextmanager
def catch_signals() -> Iterator[None]:
    """Handle the signals that are not ignored. Only the main thread of a process can do this."""
    if threading.current_thread() is not threading.main_thread() or _State.serves_sweep:
        yield
        return
    caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    requeue = signal.getsignal(signal.SIGUSR2)
    if callable(requeue) and requeue is not _handle:
        _State.requeue = requeue
        caught.append(signal.SIGUSR2)
    previous = {number: signal.signal(number, _handle) for number in caught}
    try:
        yield
    except Exception:
        raise_if_requested()
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if _handle not in previous.values():  # the outermost context
            _State.requested = 0


@contextmanager
def defer_signals() -> Iterator[None]:
    """Note the first signal instead of ending the command at once."""
    _State.deferrals += 1
    try:
        yield
    finally:
        _State.deferrals -= 1


@contextmanager
def defer_signals_of_sweep() -> Iterator[Path]:
    """Defer signals while a launcher executes runs. Yields the file for `serve_sweep`."""
    with tempfile.TemporaryDirectory(prefix="fln-") as directory, catch_signals(), defer_signals():
        _State.stop_file = Path(directory) / "stop"
        try:
            yield _State.stop_file
            raise_if_requested()
        except Exception:  # such as that of a launcher whose worker processes were killed
            raise_if_requested()
            raise
        finally:
            _State.stop_file = None


@contextmanager
def block_signals() -> Iterator[None]:
    """Start processes that a signal to the process group does not end: they inherit the mask."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        resource_tracker.ensure_running()  # unblocks signals when it starts
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def launch_until_done(launch: Callable[[], None]) -> None:
    """Launch runs, and again if a worker process dies. `launch` starts the unfinished runs."""
    for _ in range(MAX_LAUNCHES):
        try:
            return launch()
        except (BrokenExecutor, BrokenPipeError):  # the latter from a process that starts
            raise_if_requested()
    raise UserError(
        f"cannot finish the runs: worker processes died {MAX_LAUNCHES} times (killed or out of "
        "memory); rerun the same command to go on"
    )


def serve_sweep(parent: int, stop_file: Path) -> None:
    """Initialize a worker process of a launcher: the process of the sweep decides when it ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _State.serves_sweep = True
    end_with_parent(parent, stop_file)


def serves_sweep() -> bool:
    """True in a worker process of a launcher."""
    return _State.serves_sweep


def end_with_parent(parent: int, stop_file: Path | None = None) -> None:
    """End this process soon after its parent process has ended, whatever has ended it."""

    def check() -> None:
        while os.getppid() == parent:
            if stop_file is not None and stop_file.exists():
                _State.requested = signal.SIGTERM
            time.sleep(CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=check, daemon=True).start()


def _handle(number: int, frame: FrameType | None) -> None:
    is_first, _State.requested = not _State.requested, _State.requested or number
    if _State.deferrals and is_first:
        with suppress(OSError):
            os.write(2, NOTE)
        if _State.stop_file is not None:
            _State.stop_file.touch()
        return
    for child in multiprocessing.active_children():
        child.kill()
    _end(number)


def _end(number: int) -> NoReturn:
    if number == signal.SIGUSR2 and _State.requeue is not None:
        _State.requeue(number, None)  # ends the process
    raise InterruptedCommand(number)
