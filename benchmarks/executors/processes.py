"""Executor with worker processes: forked for the CPU, spawned for other devices."""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.executors.pool import PoolExecutor, TaskServer, WorkerDiedError
from benchmarks.federation.tasks import Task
from benchmarks.federation.worker import WorkerContext, limit_to_one_thread
from benchmarks.interruption import end_with_parent


@dataclass(frozen=True, eq=False)
class _ProcessWorker:
    process: BaseProcess
    connection: Connection
    context: WorkerContext

    def send(self, task: bytes) -> None:
        with suppress(OSError):  # The worker has died. Receiving fails, too.
            self.connection.send_bytes(task)

    def receive(self) -> bytes:
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            raise WorkerDiedError(f"with exit code {code} (killed or out of memory)") from None

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


class ProcessExecutor(PoolExecutor[_ProcessWorker]):
    """Workers that share the images with this process."""

    def __init__(self, contexts: Sequence[WorkerContext]):
        limit_to_one_thread()
        self._free_contexts = list(contexts)[::-1]
        super().__init__(len(contexts))

    def _start_worker(self) -> None:
        context = self._free_contexts.pop()
        is_forked = context.device.type == "cpu"  # CUDA does not work in a forked process
        method: Any = multiprocessing.get_context("fork" if is_forked else "spawn")
        parent_end, worker_end = method.Pipe()
        inherited = [*(worker.connection for worker in self._pool), parent_end] if is_forked else []
        process = method.Process(
            target=_worker_loop, args=(context, worker_end, inherited, os.getpid()), daemon=True
        )
        process.start()
        worker_end.close()
        self._pool.append(_ProcessWorker(process, parent_end, context))

    def _replace(
        self, worker: _ProcessWorker, task: Task, deaths: int, death: WorkerDiedError
    ) -> None:
        self._free_contexts.append(worker.context)
        super()._replace(worker, task, deaths, death)

    def _wait(self, running: Sequence[_ProcessWorker]) -> Sequence[_ProcessWorker]:
        ready = wait([worker.connection for worker in running])
        return [worker for worker in running if worker.connection in ready]


def _worker_loop(
    context: WorkerContext, connection: Connection, inherited: Sequence[Connection], parent: int
) -> None:
    # A signal of the terminal or of Slurm goes to all processes. The parent decides about workers.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent)
    # Close inherited pipe ends. Otherwise a worker does not see EOF when the parent dies.
    for other in inherited:
        other.close()
    context.start()
    server = TaskServer(context)
    with suppress(EOFError, OSError):  # The parent has ended, or has closed the pipe.
        while True:
            connection.send_bytes(server.reply_to(connection.recv_bytes()))
