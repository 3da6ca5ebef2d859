"""Hand-written federated averaging: the baseline implementation of the speed benchmark.

It has no method hooks, cost metering, checks or named random streams. Clients are distributed
equally over worker processes, each with a pipe.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.data import Dataset
from benchmarks.engine.functional import FunctionalModule
from methods.core.flat_model import FlatModel

STEPS_PER_CALL = 5  # optimizer steps in one compiled call

# (weights, momentum, images, labels) -> (weights, momentum)
CompiledSteps = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(eq=False)
class BaselineFedAvg:
    """FedAvg on a flat vector, eager or with compiled steps (model, loss and optimizer in one)."""

    dataset: Dataset
    client_indices: Sequence[np.ndarray]
    build_module: Callable[[], nn.Module]
    processes: int = 2
    threads: int = 1
    compiled: bool = False
    evaluates: bool = True
    clients_per_round: int = 10
    epochs: int = 5
    batch_size: int = 10
    lr: float = 0.01
    momentum: float = 0.5

    def __post_init__(self) -> None:
        self.module = self.build_module()
        self.vector = FlatModel(self.module).vector.clone()
        self.train_labels = torch.from_numpy(self.dataset.train_labels)
        self.test_labels = torch.from_numpy(self.dataset.test_labels)
        # Compile before the fork, so that it is done once.
        self.compiled_steps = self._compile(self.build_module()) if self.compiled else None
        context = multiprocessing.get_context("fork")
        self.pipes: list[Connection] = []
        self.workers = []
        for _ in range(self.processes):
            own_end, worker_end = context.Pipe()
            worker = context.Process(target=self._worker_loop, args=(worker_end,), daemon=True)
            worker.start()
            worker_end.close()
            self.workers.append(worker)
            self.pipes.append(own_end)

    def run_round(self) -> float:
        """Train a cohort, average the models and evaluate. Returns the accuracy."""
        cohort = torch.randperm(len(self.client_indices))[: self.clients_per_round].tolist()
        size = -(-len(cohort) // len(self.pipes))
        for number, pipe in enumerate(self.pipes):
            pipe.send_bytes(b"train")
            pipe.send((self.vector.numpy(), cohort[number * size : (number + 1) * size]))
        self.vector = torch.from_numpy(sum(pipe.recv() for pipe in self.pipes) / len(cohort))
        return self.evaluate() if self.evaluates else float("nan")

    def evaluate(self, batch_size: int = 500) -> float:
        """Accuracy on the test split."""
        count = len(self.dataset.test)
        size = -(-count // len(self.pipes))
        for number, pipe in enumerate(self.pipes):
            pipe.send_bytes(b"evaluate")
            last = min((number + 1) * size, count)
            pipe.send((self.vector.numpy(), number * size, last, batch_size))
        return float(sum(pipe.recv() for pipe in self.pipes)) / count

    def close(self) -> None:
        """Stop the workers."""
        for pipe in self.pipes:
            # Processes of other instances have copies of the pipe, so closing it is not enough.
            pipe.send_bytes(b"stop")
            pipe.close()
        for worker in self.workers:
            worker.join()

    def _worker_loop(self, pipe: Connection) -> None:
        for other in self.pipes:
            other.close()
        torch.set_num_threads(self.threads)
        model = FlatModel(self.module)
        while (task := pipe.recv_bytes()) != b"stop":
            function = self._train if task == b"train" else self._count_correct
            pipe.send(function(model, *pipe.recv()))

    def _train(self, model: FlatModel, vector: np.ndarray, clients: Sequence[int]) -> np.ndarray:
        received, total = torch.from_numpy(vector), torch.zeros_like(model.vector)
        model.train()
        run_epoch = self._run_epoch if self.compiled_steps is None else self._run_compiled_epoch
        for client in clients:
            model.vector.copy_(received)
            index = torch.from_numpy(self.client_indices[client])
            momentum = torch.zeros_like(model.weights)
            for _ in range(self.epochs):
                order = index[torch.randperm(len(index))]
                images = self.dataset.train.fetch(order)
                x = self.dataset.views(images, "train", torch.default_generator)
                run_epoch(model, momentum, x, self.train_labels[order])
            total += model.vector
        return total.numpy()

    def _run_epoch(self, model: FlatModel, momentum: Tensor, x: Tensor, y: Tensor) -> None:
        for images, labels in _batches(x, y, self.batch_size):
            model.grad.zero_()
            torch.autograd.backward(F.cross_entropy(model.module(images), labels))
            momentum.mul_(self.momentum).add_(model.grad)
            model.weights.add_(momentum, alpha=-self.lr)

    @torch.no_grad()
    def _run_compiled_epoch(self, model: FlatModel, momentum: Tensor, x: Tensor, y: Tensor) -> None:
        assert self.compiled_steps is not None
        for images, labels in _batches(x, y, STEPS_PER_CALL * self.batch_size):
            new_weights, new_momentum = self.compiled_steps(model.weights, momentum, images, labels)
            model.weights.copy_(new_weights)
            momentum.copy_(new_momentum)

    def _compile(self, module: nn.Module) -> CompiledSteps:
        function = FunctionalModule(module, "forward")
        batch_size, lr, factor = self.batch_size, self.lr, self.momentum
        no_buffers = torch.zeros(0)

        def loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(function.functional_forward(weights, no_buffers, x)[0], y)

        def run_steps(
            weights: Tensor, momentum: Tensor, images: Tensor, labels: Tensor
        ) -> tuple[Tensor, Tensor]:
            for x, y in _batches(images, labels, batch_size):
                momentum = factor * momentum + torch.func.grad(loss)(weights, x, y)
                weights = weights - lr * momentum
            return weights, momentum

        options: dict[str, Any] = {"compile_threads": 1}
        compiled = torch.compile(run_steps, dynamic=False, fullgraph=True, options=options)
        with torch.no_grad():  # the first call compiles
            weights = torch.zeros(sum(p.numel() for p in module.parameters()))
            images = torch.zeros(STEPS_PER_CALL * batch_size, *self.dataset.shape)
            labels = torch.zeros(len(images), dtype=torch.int64)
            compiled(weights, weights.clone(), images, labels)
        return compiled

    @torch.no_grad()
    def _count_correct(
        self, model: FlatModel, vector: np.ndarray, first: int, last: int, batch_size: int
    ) -> int:
        model.vector.copy_(torch.from_numpy(vector))
        model.eval()
        correct = 0
        for index in torch.split(torch.arange(first, last), batch_size):
            x = self.dataset.views(self.dataset.test.fetch(index), "plain", None)
            correct += int((model.module(x).argmax(1) == self.test_labels[index]).sum())
        return correct


def _batches(x: Tensor, y: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(x, size), torch.split(y, size), strict=True))
