"""Client tasks in forked worker processes."""

import multiprocessing
import pickle
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from benchmarks.executors.base import limit_to_one_thread
from benchmarks.executors.serialization import dumps
from benchmarks.federation.worker import ClientTask, PredictionTask, WorkerContext
from methods.core.contract import DivergenceError

WORKER_DIED = "a worker process died (killed, or out of memory); the same command goes on from the last checkpoint"


class ProcessExecutor:
    """Forked workers that share the data with this process; tasks go out as workers become free, results come back in order."""

    def __init__(self, workshop: WorkerContext, workers: int):
        limit_to_one_thread()
        self.workers = workers
        context = multiprocessing.get_context("fork")
        self._connections: list[Connection] = []
        self._processes = []
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(
                target=_serve, args=(workshop, there, [*self._connections, here]), daemon=True
            )
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def run(self, jobs: Sequence[ClientTask | PredictionTask]) -> list[Any]:
        results: list[Any] = [None] * len(jobs)
        waiting = list(range(len(jobs)))[::-1]
        running: dict[Connection, int] = {}
        for connection in self._connections:
            self._send(connection, jobs, waiting, running)
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
                self._send(connection, jobs, waiting, running)
        if failure is not None:
            raise failure
        return results

    @staticmethod
    def _send(
        connection: Connection,
        jobs: Sequence[ClientTask | PredictionTask],
        waiting: list[int],
        running: dict[Connection, int],
    ) -> None:
        if waiting:
            number = waiting.pop()
            try:
                connection.send_bytes(dumps(jobs[number]))
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


class WorkerError(RuntimeError):
    """An error inside a worker, with its traceback as text."""


def _serve(workshop: WorkerContext, connection: Connection, others: list[Connection]) -> None:
    for other in (
        others
    ):  # inherited ends: left open they would keep a worker alive after its parent's death
        other.close()
    while True:
        try:
            job = pickle.loads(connection.recv_bytes())
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer = dumps(workshop.do(job))
        except KeyboardInterrupt:
            return
        except DivergenceError as error:
            answer = dumps(error)
        except Exception as error:
            answer = dumps(
                WorkerError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
            )
        try:
            connection.send_bytes(answer)
        except OSError:  # nobody listens any more
            return
