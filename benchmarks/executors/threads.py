"""Thread limits of the processes that execute tasks."""

import torch
from threadpoolctl import threadpool_limits


def limit_to_one_thread() -> None:
    """Limit this process to one thread.

    Results are then the same on every machine, and no process with a thread pool is forked.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)
