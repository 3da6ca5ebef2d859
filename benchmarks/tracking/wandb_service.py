"""Limits on how long W&B is waited for.

W&B's client talks to a process of its own, the service, and in places waits for it without a limit. A service that hangs, or that lost the request to
end (it does so now and then after a request that had run out of time), would hold up the run, or its end, for ever.
"""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import wandb
from wandb.sdk import wandb_setup

END_SECONDS = 15.0  # that the service may take to end


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is asked of W&B inside and takes longer costs the service its life, whereupon W&B's client raises an error."""
    there = _service()  # now: wandb.teardown forgets it before it waits for it

    def kill() -> None:
        process = there or _service()  # or it was started inside
        if process is not None:
            process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end(seconds: float = END_SECONDS) -> None:
    """wandb.teardown, in a limited time and without errors of its own; the service is gone afterwards, also where W&B had lost it."""
    process = _service()
    with within(seconds), suppress(Exception, SystemExit):
        wandb.teardown()
    if process is not None:
        process.kill()
        process.wait()


def _service() -> "subprocess.Popen[bytes] | None":
    """The process, if this one has started it. W&B has no public name for it."""
    connection = wandb_setup._singleton and wandb_setup._singleton._connection
    return connection._proc._process if connection and connection._proc else None
