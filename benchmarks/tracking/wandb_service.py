"""Time limits for W&B calls.

W&B's client talks to its service process and waits for some replies without a timeout. The service
can also miss the request to shut down. Without limits a hanging service would block the run.
"""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import wandb
from wandb.sdk import wandb_setup

TEARDOWN_TIMEOUT_S = 15.0


@contextmanager
def service_timeout(seconds: float) -> Iterator[None]:
    """Kill the W&B service if the block takes longer. The W&B client then raises an error."""
    # Read it now: wandb.teardown clears the reference before it waits for the process.
    process_at_start = _service_process()

    def kill() -> None:
        process = process_at_start or _service_process()
        if process is not None:
            process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def teardown(seconds: float = TEARDOWN_TIMEOUT_S) -> None:
    """Call wandb.teardown with a timeout. The service process is always terminated."""
    process = _service_process()
    with service_timeout(seconds), suppress(Exception, SystemExit):
        wandb.teardown()
    if process is not None:
        process.kill()
        process.wait()


def _service_process() -> "subprocess.Popen[bytes] | None":
    """The service process if this process has started it. W&B has no public API for it."""
    connection = wandb_setup._singleton and wandb_setup._singleton._connection
    return connection._proc._process if connection and connection._proc else None
