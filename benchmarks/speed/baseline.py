"""Hand-written federated averaging: the baseline implementation of the speed benchmark.

It has no method hooks, cost metering, checks or named random streams. Clients are distributed
equally over worker processes, each with a pipe.
"""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.speed.harness import ReferenceWork
from methods.core.flat_model import FlatModel


class BaselineFedAvg:
    """FedAvg on a flat vector."""

    def __init__(self, work: ReferenceWork, processes: int = 2, threads: int = 1):
        self.work, self.threads = work, threads
        self.module = work.build_module()
        self.vector = FlatModel(self.module).vector.numpy().copy()
        context = multiprocessing.get_context("fork")
        self.pipes: list[Connection] = []
        self.workers = []
        for _ in range(processes):
            own_end, worker_end = context.Pipe()
            worker = context.Process(target=self._worker_loop, args=(worker_end,), daemon=True)
            worker.start()
            worker_end.close()
            self.workers.append(worker)
            self.pipes.append(own_end)

    def run_round(self) -> float | None:
        """Train a cohort, average the models and evaluate. Returns the accuracy."""
        cohort = torch.randperm(len(self.work.client_indices))[: self.work.clients_per_round]
        self.vector = sum(self._ask(self._train, cohort.tolist())) / len(cohort)
        return self.evaluate() if self.work.evaluates else None

    def evaluate(self, batch_size: int = 500) -> float:
        images = range(len(self.work.dataset.test))
        return float(sum(self._ask(self._count_correct, images, batch_size))) / len(images)

    def close(self) -> None:
        for pipe in self.pipes:
            # Processes of other instances have copies of the pipe, so closing it is not enough.
            pipe.send(None)
            pipe.close()
        for worker in self.workers:
            worker.join()

    def _ask(self, task: Any, items: Sequence[int], *arguments: int) -> list[Any]:
        """Let the workers do a task, each for an equal part of the items."""
        for pipe, part in zip(self.pipes, np.array_split(items, len(self.pipes)), strict=True):
            pipe.send((task.__name__, self.vector, part, *arguments))
        return [pipe.recv() for pipe in self.pipes]

    def _worker_loop(self, pipe: Connection) -> None:
        for other in self.pipes:
            other.close()
        torch.set_num_threads(self.threads)
        model = FlatModel(self.module)
        while request := pipe.recv():
            task, vector, *arguments = request
            model.vector.copy_(torch.from_numpy(vector))
            pipe.send(getattr(self, task)(model, *arguments))

    def _train(self, model: FlatModel, clients: Sequence[int]) -> np.ndarray:
        """Sum of the models of the clients."""
        work, received, total = self.work, model.vector.clone(), torch.zeros_like(model.vector)
        model.train()
        for client in clients:
            model.vector.copy_(received)
            momentum = torch.zeros_like(model.weights)
            for _ in range(work.epochs):
                for images, labels in work.batches(client):
                    model.grad.zero_()
                    torch.autograd.backward(F.cross_entropy(model.module(images), labels))
                    momentum.mul_(work.momentum).add_(model.grad)
                    model.weights.add_(momentum, alpha=-work.lr)
            total += model.vector
        return total.numpy()

    @torch.no_grad()
    def _count_correct(self, model: FlatModel, images: np.ndarray, batch_size: int) -> int:
        model.eval()
        batches = self.work.test_batches(images, batch_size)
        return sum(int((model.module(x).argmax(1) == y).sum()) for x, y in batches)
