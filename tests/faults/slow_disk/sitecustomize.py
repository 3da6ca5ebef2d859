"""Writing a file takes longer in processes that have this directory in PYTHONPATH."""

import os
import time

_fsync = os.fsync


def _slow_fsync(descriptor: int) -> None:
    time.sleep(0.02)
    _fsync(descriptor)


os.fsync = _slow_fsync
