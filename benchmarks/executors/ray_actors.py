"""Executor with Ray actors, on this machine or on a cluster."""

import logging
import os
import pickle
import signal
import socket
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from benchmarks.config.schema import ExecutorConfig
from benchmarks.executors.pool import (
    MAX_REPEATS,
    PoolExecutor,
    TaskServer,
    WorkerDiedError,
    WorkerError,
)
from benchmarks.executors.serialization import dumps_with_buffers
from benchmarks.federation.devices import resolve_devices
from benchmarks.federation.worker import WorkerContext
from methods.core.errors import UserError, first_line, invalid
from methods.core.machine import available_cores

START_SECONDS = 300.0  # without any worker; a cluster may add nodes in this time
CONNECT_SECONDS = 10.0  # Ray itself tries for minutes


class _Actor:
    """A worker. The arrays of its context stay in the object store, one copy per node."""

    def __init__(self, device: str):
        self._device = device

    def load(self, context: list[Any]) -> None:
        # The store is read-only. Data of the context is never written.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        message, *buffers = context
        loaded: WorkerContext = pickle.loads(message, buffers=buffers)
        loaded.device = resolve_devices(self._device)[0]
        loaded.start()
        self._server = TaskServer(loaded)

    def execute(self, task: bytes) -> bytes:
        return self._server.reply_to(task)


class _RayWorker:
    def __init__(self, actor: Any, context: Any):
        self._actor = actor
        self.reply = actor.load.remote(context)

    def send(self, task: bytes) -> None:
        self.reply = self._actor.execute.remote(task)

    def receive(self) -> bytes:
        try:
            reply: bytes = ray.get(self.reply)
            return reply
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            raise WorkerDiedError(f"{type(cause).__name__}: {first_line(cause)}") from None

    def end(self) -> None:
        ray.kill(self._actor)


class RayExecutor(PoolExecutor[_RayWorker]):
    """Actors as workers. They get tasks once they have started, so a lost node is no obstacle."""

    def __init__(self, context: WorkerContext, config: ExecutorConfig):
        needed = {"CPU": config.resources.cpus, "GPU": config.resources.gpus}
        # An actor without a GPU of its own must not find one.
        is_auto = config.device == "auto"
        self._device = "cpu" if is_auto and not config.resources.gpus else config.device
        self._needed = {name: amount for name, amount in needed.items() if amount}
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            workers = 0 if config.workers == "auto" else config.workers
            connect(config.address, workers * config.resources.cpus)
        message, buffers = dumps_with_buffers(context)
        self._context = ray.put(
            [message, *(np.frombuffer(buffer.raw(), "u1") for buffer in buffers)]
        )
        self._actor = ray.remote(_Actor).options(
            num_cpus=config.resources.cpus, num_gpus=config.resources.gpus
        )
        self._starting: list[_RayWorker] = []
        self._failed_starts = 0
        super().__init__(
            _count_workers(self._needed) if config.workers == "auto" else config.workers
        )
        try:
            while not self._pool:
                self._wait([])
        except WorkerError as error:
            self.close()
            raise UserError(str(error)) from None

    def _start_worker(self) -> None:
        self._starting.append(_RayWorker(self._actor.remote(self._device), self._context))

    def _wait(self, running: Sequence[_RayWorker]) -> Sequence[_RayWorker]:
        events = {worker.reply: worker for worker in [*running, *self._starting]}
        timeout = None if running else START_SECONDS
        ready, _ = ray.wait(list(events), num_returns=1, timeout=timeout)
        if not ready:
            raise WorkerError(
                f"no Ray worker has started in {START_SECONDS:.0f} s: a worker needs "
                f"{self._needed}, free in the cluster: {_free_resources(self._needed)}"
            )
        worker = events[ready[0]]
        if worker in self._starting:
            self._finish_start(worker)
            return []
        return [worker]

    def _finish_start(self, worker: _RayWorker) -> None:
        self._starting.remove(worker)
        try:
            worker.receive()
            self._pool.append(worker)
            self._failed_starts = 0
        except WorkerDiedError as death:
            self._failed_starts += 1
            if self._failed_starts > MAX_REPEATS * self.workers:
                raise WorkerError(f"Ray workers cannot start: {death}") from None
            self._start_worker()

    def close(self) -> None:
        for worker in [*self._pool, *self._starting]:
            worker.end()
        if self._connected_here:
            ray.shutdown()


def connect(address: str | None, cpus: float = 0) -> None:
    """Connect to a cluster. None: start Ray on this machine, with at least this number of CPUs."""
    # Ray's messages would interrupt the display of the run.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"address": address}
    if address is None:
        cpus = max(available_cores(), cpus)
        options = {"address": "local", "include_dashboard": False, "num_cpus": cpus}
    elif address != "auto":
        _check_address(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        place = "start Ray" if address is None else f"connect to Ray at {address}"
        raise UserError(f"cannot {place}: {first_line(error)}") from error
    finally:
        signal.signal(signal.SIGTERM, handler)  # that of the command, instead of Ray's


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise invalid("executor.address", address, "null, auto or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"cannot connect to Ray at {address}: {first_line(error)}") from error


def _count_workers(needed: dict[str, float]) -> int:
    total = ray.cluster_resources()
    fitting = [int(total.get(name, 0) // amount) for name, amount in needed.items()]
    return max(min(fitting, default=1), 1)


def _free_resources(needed: dict[str, float]) -> dict[str, float]:
    free = ray.available_resources()
    return {name: free.get(name, 0.0) for name in needed}
