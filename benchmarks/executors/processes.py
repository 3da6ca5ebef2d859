"""Executor with forked worker processes."""

import multiprocessing
import os
import pickle
import signal
import traceback
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, cast

from benchmarks.executors.serialization import dumps
from benchmarks.federation.tasks import ClientTask, Task
from benchmarks.federation.worker import WorkerContext, limit_to_one_thread
from benchmarks.interruption import end_with_parent
from methods.core.contract import DivergenceError

MAX_REPEATS = 3  # of a task whose worker has died


class WorkerError(RuntimeError):
    """An error in a worker. The message ends with the worker's traceback."""


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection

    def end(self) -> None:
        """End the process, whatever it does. A task is never left half done: it is repeated."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class ProcessExecutor:
    """Forked workers that share the data with this process. A free worker gets the next task.

    A worker that dies is replaced and its task repeated, because a task is a pure function.
    """

    def __init__(self, context: WorkerContext, workers: int):
        limit_to_one_thread()
        self.workers = workers
        self._context = context
        self._pool: list[_Worker] = []
        for _ in range(workers):
            self._start_worker()

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        waiting = list(range(len(tasks)))[::-1]
        deaths: Counter[int] = Counter()
        running: dict[Connection, tuple[int, _Worker]] = {}
        idle = self._pool.copy()
        failure: Exception | None = None
        while waiting or running:
            while waiting and idle:
                worker, number = idle.pop(), waiting.pop()
                running[worker.connection] = number, worker
                try:
                    worker.connection.send_bytes(dumps(tasks[number]))
                except OSError:  # The worker has died. Receiving fails, too.
                    pass
            for ready in wait(list(running)):
                number, worker = running.pop(cast(Connection, ready))
                try:
                    results[number] = pickle.loads(worker.connection.recv_bytes())
                except (EOFError, OSError):
                    deaths[number] += 1
                    worker = self._replace(worker, tasks[number], deaths[number])
                    waiting.append(number)
                idle.append(worker)
                if isinstance(results[number], Exception):
                    failure, waiting = results[number], []
        if failure is not None:
            raise failure
        return results

    def close(self) -> None:
        for worker in self._pool:
            worker.end()

    def _start_worker(self) -> _Worker:
        fork = multiprocessing.get_context("fork")
        parent_end, worker_end = fork.Pipe()
        inherited = [*(worker.connection for worker in self._pool), parent_end]
        process = fork.Process(
            target=_worker_loop,
            args=(self._context, worker_end, inherited, os.getpid()),
            daemon=True,
        )
        process.start()
        worker_end.close()
        self._pool.append(_Worker(process, parent_end))
        return self._pool[-1]

    def _replace(self, worker: _Worker, task: Task, deaths: int) -> _Worker:
        """A new worker for one that has died. Raises WorkerError after too many deaths."""
        worker.end()
        self._pool.remove(worker)
        if deaths > MAX_REPEATS:
            name = f"client {task.client_id}" if isinstance(task, ClientTask) else "the evaluation"
            raise WorkerError(
                f"the worker of {name} died {deaths} times, with exit code "
                f"{worker.process.exitcode} (killed or out of memory)"
            )
        return self._start_worker()


def _worker_loop(
    context: WorkerContext, connection: Connection, inherited: Sequence[Connection], parent: int
) -> None:
    # A signal of the terminal goes to all processes. The parent decides when a worker ends.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent)
    # Close inherited pipe ends. Otherwise a worker does not see EOF when the parent dies.
    for other in inherited:
        other.close()
    while True:
        try:
            task = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):  # The parent has ended.
            return
        try:
            message = dumps(context.execute(task))
        except DivergenceError as error:
            message = dumps(error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            message = dumps(WorkerError(text))
        try:
            connection.send_bytes(message)
        except OSError:  # The parent has closed the pipe.
            return
