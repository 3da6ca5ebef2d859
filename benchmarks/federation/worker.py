"""Worker context: everything that a worker needs to execute tasks."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from benchmarks.data.images import FileImages
from benchmarks.engine.cuda_graph import GraphStep
from benchmarks.federation import devices
from benchmarks.federation.client import ClientImages, ImageSplit, LocalClient, changes_of
from benchmarks.federation.devices import DeviceReport
from benchmarks.federation.tasks import (
    ClientTask,
    ClientTaskResult,
    PredictionResult,
    PredictionTask,
    Task,
)
from benchmarks.federation.transfer import HOST, DeviceTransfer, upload
from methods.core.contract import Method
from methods.core.flat_model import Engine, FlatModel
from methods.core.machine import available_cores
from methods.core.streams import derive_seed
from methods.core.task import LocalTask

EVAL_BATCH_SIZE = 500


def limit_to_one_thread() -> None:
    """Limit this process to one thread: results are then the same on every machine.

    A process without a thread pool can also be forked safely.
    """
    torch.set_num_threads(1)
    threadpool_limits(1)


@dataclass
class WorkerContext:
    """State of a worker: images, given labels, the client-side method and reusable models."""

    train: ImageSplit
    test: ImageSplit
    num_classes: int
    client_indices: Sequence[np.ndarray]
    all_given_labels: Tensor
    method: Method
    build_module: Callable[[], nn.Module]
    engine: Engine | None = None  # None: models compute their own forward passes
    precision: str = "fp32"
    uses_cuda_graph: bool = False
    device: torch.device = HOST
    workers_on_device: int = 1
    _reader: ThreadPoolExecutor | None = field(default=None, init=False)
    _ahead: dict[int, Future[Tensor]] = field(default_factory=dict, init=False)  # by client
    _models: list[FlatModel] = field(default_factory=list, init=False)
    _models_in_use: int = field(default=0, init=False)

    def start(self) -> None:
        """Prepare this process, which is that of the worker, and its device."""
        limit_to_one_thread()
        for split in (self.train, self.test):
            if isinstance(split.images, FileImages):
                split.images.num_threads = max(available_cores() // self.workers_on_device, 1)
        if self.device.type == "cpu":
            return
        devices.set_up(self.device, self.precision)
        for name in ("train", "test"):
            free = devices.free_memory(self.device) / self.workers_on_device
            split = getattr(self, name)
            setattr(self, name, devices.place_images(split, self.device, free))

    def acquire_model(self) -> FlatModel:
        """A model instance that the current task does not use yet."""
        if self._models_in_use == len(self._models):
            # Building a model draws initial weights from the generator that dropout uses.
            with torch.random.fork_rng(devices=[]):
                module = self.build_module().to(self.device)
                self._models.append(FlatModel(module, self.engine))
        self._models_in_use += 1
        return self._models[self._models_in_use - 1]

    def _read_ahead(self, client_id: int) -> None:
        """Read the images of a client in another thread, unless they are ready in memory."""
        index = torch.from_numpy(self.client_indices[client_id])
        is_ready = self.train.images.in_memory and self.device.type == "cpu"
        if is_ready or self.train.on_device is not None or self.train.is_streamed(len(index)):
            return
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1)
        self._ahead[client_id] = self._reader.submit(self.train.read, index, self.device)

    def execute(
        self, task: Task, next_client: int | None = None, transfer: DeviceTransfer | None = None
    ) -> Any:
        """Execute a task on the device. The task and the result are in host memory.

        The images of the next client are read meanwhile. Tasks with the same transfer share what
        their payloads have in common.
        """
        self._models_in_use = 0
        transfer = transfer or DeviceTransfer(self.device)
        try:
            if isinstance(task, ClientTask):
                ahead = self._ahead.pop(task.client_id, None)
                self._ahead.clear()
                if next_client is not None:
                    self._read_ahead(next_client)
                return self._run(task, transfer, None if ahead is None else ahead.result)
            if isinstance(task, PredictionTask):
                return transfer.to_host(self._predict(task, transfer))
            return self._describe_device()
        except torch.OutOfMemoryError as error:
            lower = "lower executor.workers or train.batch_size, or use executor.device=cpu"
            raise torch.OutOfMemoryError(f"{self.device} has no memory left: {lower}") from error

    def _describe_device(self) -> DeviceReport:
        if self.device.type == "cpu":
            return DeviceReport()
        example = torch.zeros(2, *self.train.views.shape)
        return devices.describe(self.device, self.build_module, example)

    def _run(
        self, task: ClientTask, transfer: DeviceTransfer, read: Callable[[], Tensor] | None
    ) -> ClientTaskResult:
        # Dropout draws from torch's global generator, so each task gets its own stream.
        stream = task.ctx.generator("layers", task.task, task.client_id)
        self._seed_layers(stream.initial_seed())
        index = torch.from_numpy(self.client_indices[task.client_id])
        given_labels = self.all_given_labels[index]
        labels = given_labels if task.labels is None else task.labels
        payload = transfer.to_device(task.payload, shared=True)
        client = LocalClient(
            task.client_id,
            ClientImages(self.train, index, self.device, read),
            given_labels,
            labels,
            dict(task.state),
            self.num_classes,
            self.acquire_model,
            *([GraphStep] if self.uses_cuda_graph else []),
        )
        reply = getattr(self.method, task.task)(LocalTask(client, payload, task.ctx))
        reply, (new_labels, state) = transfer.to_host((reply, changes_of(client)))
        return ClientTaskResult(
            reply,
            new_labels,
            state,
            client.samples_trained,
            client.samples_scored,
            all(bool(torch.isfinite(vector).all()) for vector in reply.models.values()),
        )

    @torch.no_grad()
    def _predict(self, task: PredictionTask, transfer: DeviceTransfer) -> PredictionResult:
        vectors = transfer.to_device(task.models, shared=True)
        models = {name: self.acquire_model().load(v).eval() for name, v in vectors.items()}
        parts = []
        for index in torch.split(task.index, EVAL_BATCH_SIZE):
            # For models whose dropout stays active in evaluation mode.
            self._seed_layers(derive_seed("prediction"))
            probabilities = self.method.predict(models, self._plain_images(index))
            parts.append(probabilities.clamp_min(1e-30).log())
        log_likelihood = torch.cat(parts)
        return PredictionResult(log_likelihood.argmax(1), log_likelihood)

    def _plain_images(self, index: Tensor) -> Tensor:
        """Images of both splits; indices are as in `PredictionTask`."""
        num_test = len(self.test.images)
        is_test = index < num_test
        test = self.test.plain(index[is_test], self.device)
        train = self.train.plain(index[~is_test] - num_test, self.device)
        rows = torch.cat([is_test.nonzero(), (~is_test).nonzero()])[:, 0].argsort()
        return torch.cat([test, train]).index_select(0, *upload([rows], self.device))

    def _seed_layers(self, seed: int) -> None:
        """Seed the generator that dropout uses."""
        # torch.manual_seed would also record a stack trace per accelerator type, about 1 ms.
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)
