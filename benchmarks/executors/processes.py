"""Executor with forked worker processes."""

import multiprocessing
import pickle
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from benchmarks.executors.serialization import dumps
from benchmarks.federation.tasks import Task
from benchmarks.federation.worker import WorkerContext, limit_to_one_thread
from methods.core.contract import DivergenceError

WORKER_DIED = (
    "a worker process died (killed or out of memory); "
    "rerun the same command to resume from the last checkpoint"
)


class WorkerError(RuntimeError):
    """An error in a worker. The message ends with the worker's traceback."""


class ProcessExecutor:
    """Forked workers that share the data with this process. A free worker gets the next task."""

    def __init__(self, context: WorkerContext, workers: int):
        limit_to_one_thread()
        self.workers = workers
        fork = multiprocessing.get_context("fork")
        self._connections: list[Connection] = []
        self._processes = []
        for _ in range(workers):
            parent_end, worker_end = fork.Pipe()
            inherited = [*self._connections, parent_end]
            process = fork.Process(
                target=_worker_loop, args=(context, worker_end, inherited), daemon=True
            )
            process.start()
            worker_end.close()
            self._connections.append(parent_end)
            self._processes.append(process)

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        waiting = list(range(len(tasks)))[::-1]
        running: dict[Connection, int] = {}
        for connection in self._connections:
            self._send_next(connection, tasks, waiting, running)
        failure: Exception | None = None
        while running:
            for ready in wait(list(running)):
                connection = cast(Connection, ready)
                number = running.pop(connection)
                try:
                    result = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    raise WorkerError(WORKER_DIED) from None
                if isinstance(result, Exception):
                    failure, waiting = result, []
                results[number] = result
                self._send_next(connection, tasks, waiting, running)
        if failure is not None:
            raise failure
        return results

    @staticmethod
    def _send_next(
        connection: Connection,
        tasks: Sequence[Task],
        waiting: list[int],
        running: dict[Connection, int],
    ) -> None:
        if not waiting:
            return
        number = waiting.pop()
        try:
            connection.send_bytes(dumps(tasks[number]))
        except OSError:
            raise WorkerError(WORKER_DIED) from None
        running[connection] = number

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def _worker_loop(
    context: WorkerContext, connection: Connection, inherited: Sequence[Connection]
) -> None:
    # Close inherited pipe ends. Otherwise a worker does not see EOF when the parent dies.
    for other in inherited:
        other.close()
    while True:
        try:
            task = pickle.loads(connection.recv_bytes())
        except (EOFError, KeyboardInterrupt):
            return
        try:
            message = dumps(context.execute(task))
        except KeyboardInterrupt:
            return
        except DivergenceError as error:
            message = dumps(error)
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            message = dumps(WorkerError(text))
        try:
            connection.send_bytes(message)
        except OSError:  # The parent has closed the pipe.
            return
