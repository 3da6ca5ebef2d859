"""The machine that this process runs on."""

import os


def available_cores() -> int:
    """Number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS
